"""Control path of a launch: from the host over IO_CPU (ADR-0036) and M_CPUs (ADR-0035) to PEs, and back.

A config without a control path launches at once (:class:`DirectLaunch`). Page-table updates and the host's copies do
not use this path; they take no time.
"""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import groupby
from typing import Any, NamedTuple

from sipsim.config.schema import IoCpu, MCpu, Resolved
from sipsim.config.schema import Launch as LaunchSection
from sipsim.core.engine import Engine
from sipsim.core.errors import InvariantViolation
from sipsim.core.units import ns_to_ps
from sipsim.fabric.graph import Node, Route, RouteGraph
from sipsim.fabric.transport import Transport
from sipsim.records.recorder import Recorder

Ps = int
Place = tuple[int, int]
"""PE of a SIP: cube and number."""
IO_CPU_NODE = Node("io_cpu", -1, 0)


def m_cpu(cube: int) -> Node:
    """Return the node of a cube's M_CPU."""
    return Node("m_cpu", cube, 0)


def by_cube(places: Iterable[Place]) -> dict[int, list[int]]:
    """Return the PE numbers of each cube, in the order of ``places``."""
    return {cube: [pe for _, pe in group] for cube, group in groupby(sorted(places), key=lambda place: place[0])}


class Stretch(NamedTuple):
    """Term of the fan-out's bound: head of ``route``, ``messages`` drains of ``nbytes``, ``dispatches`` dispatches."""

    route: Route
    nbytes: int
    messages: int
    dispatches: int


class LaunchPath:
    """Path and times of a launch, derived by every process from sections ``launch``, ``io_cpu`` and ``m_cpu``.

    IO_CPU stamps one start for all cubes of a launch (ADR-0036), ``margin_ps`` after it has taken the launch. Without a
    configured margin, this is an upper bound of the uncontended fan-out, with the slowest edge's drain:

        max over cubes of head(IO_CPU to M_CPU) + n_cubes * drain(cube_bytes)
        + max over cubes of (n_pes * dispatch + max over PEs of head(M_CPU to PE) + n_pes * drain(pe_bytes))

    This assumes that all messages of one sender queue on each edge, so no message arrives later. Limits: the bound
    excludes other traffic and CPUs that are busy with another launch; a kernel that either of these delays starts late.
    """

    def __init__(self, resolved: Resolved, graph: RouteGraph) -> None:
        components = resolved.components
        launch, io_cpu, m_cpu_ = components.launch, components.io_cpu, components.m_cpu
        assert launch is not None
        assert io_cpu is not None
        assert m_cpu_ is not None
        self._graph = graph
        self.launch: LaunchSection = launch
        self.io_cpu: IoCpu = io_cpu
        self.m_cpu: MCpu = m_cpu_
        self.host_ps = ns_to_ps(launch.host_latency_ns)
        self.launch_ps = ns_to_ps(io_cpu.launch_ns)
        self.io_gather_ps = ns_to_ps(io_cpu.gather_ns)
        self.dispatch_ps = ns_to_ps(m_cpu_.dispatch_ns)
        self.m_gather_ps = ns_to_ps(m_cpu_.gather_ns)

    def skew_ps(self, rank: int) -> Ps:
        """Return the delay in ps of a rank's launches at its host: the configured delay, or a draw from the seed."""
        configured_ns = self.launch.start_skew_ns.get(str(rank))
        if configured_ns is not None:
            return ns_to_ps(configured_ns)
        limit_ps = ns_to_ps(self.launch.max_start_skew_ns)
        if not limit_ps:
            return 0
        drawn = hashlib.sha256(f"start skew {self.launch.start_skew_seed} {rank}".encode()).digest()
        return int.from_bytes(drawn[:8], "big") % (limit_ps + 1)

    def margin_ps(self, places: Sequence[Place]) -> Ps:
        """Return the time from IO_CPU's stamp to the start of the kernels of a launch on these PEs."""
        if self.launch.start_margin_ns is not None:
            return ns_to_ps(self.launch.start_margin_ns)
        return sum(self.stretch_ps(each) for each in self.fan_out(places))

    def fan_out(self, places: Sequence[Place]) -> list[Stretch]:
        """Return the terms of the bound of a launch's fan-out; an empty list for a launch without PEs."""
        cubes = by_cube(places)
        if not cubes:
            return []
        to_cubes = [self._graph.route(IO_CPU_NODE, m_cpu(cube)) for cube in cubes]
        in_cubes = [self._in_cube(cube, pes) for cube, pes in cubes.items()]
        farthest = max(to_cubes, key=Route.head_ps)
        return [Stretch(farthest, self.launch.cube_bytes, len(cubes), 0), max(in_cubes, key=self.stretch_ps)]

    def stretch_ps(self, stretch: Stretch) -> Ps:
        """Return the time of a term of the bound."""
        route, nbytes, messages, dispatches = stretch
        return route.head_ps() + messages * route.drain_ps(nbytes) + dispatches * self.dispatch_ps

    def _in_cube(self, cube: int, pes: Sequence[int]) -> Stretch:
        routes = [self._graph.route(m_cpu(cube), Node("pe", cube, pe)) for pe in pes]
        return Stretch(max(routes, key=Route.head_ps), self.launch.pe_bytes, len(pes), len(pes))


class FanOutChecker:
    """Checker of all broadcasts of one SIP (``--check-invariants``): tracks which PEs got a message and which answered.

    Raises:
        InvariantViolation: from every method.
    """

    def __init__(self, sip: int) -> None:
        self._sip = sip
        self._pending: dict[Any, set[Place]] = {}

    def sent(self, round_: object, places: Sequence[Place]) -> None:
        """Check that a broadcast sends its message to each of these PEs once."""
        self._pending[round_] = set(places)
        if len(self._pending[round_]) < len(places):
            raise self._violation(f"a broadcast sends its message to a PE twice; its (cube, PE) list: {sorted(places)}")

    def answered(self, round_: object, place: Place) -> None:
        """Check that a PE answers a message of the broadcast, and answers only once."""
        if place not in self._pending.get(round_, ()):
            raise self._violation(f"cube {place[0]}, PE {place[1]} answers a message twice, or before its arrival")
        self._pending[round_].remove(place)

    def gathered(self, round_: object) -> None:
        """Check that all PEs have answered when IO_CPU has gathered a broadcast's answers."""
        missing = self._pending.pop(round_)
        if missing:
            raise self._violation(f"IO_CPU gathered a launch before (cube, PE) {sorted(missing)} answered")

    def starts(self, place: Place, now_ps: Ps, target_ps: Ps) -> None:
        """Check that a kernel that starts now, at ``now_ps``, does not start before ``target_ps``."""
        if now_ps < target_ps:
            where = f"cube {place[0]}, PE {place[1]}"
            raise self._violation(f"kernel on {where} starts at {now_ps} ps, before its stamped start, {target_ps} ps")

    def _violation(self, what: str) -> InvariantViolation:
        return InvariantViolation(f"SIP {self._sip}: {what}")


AtPe = Callable[[Place, int], None]
"""Callback for the arrival of a round's message at a PE, with the span of the message."""
TO_CUBE, TO_PE, OF_PE, OF_CUBE = "to M_CPU", "to PE", "answer of PE", "answer of M_CPU"
DISPATCH, GATHER = "dispatch", "gather"
"""Names of spans."""
M_CPU = "m_cpu."
"""Prefix of the names of M_CPUs in spans."""


def m_cpu_name(cube: int) -> str:
    """Return the name of a cube's M_CPU in spans."""
    return f"{M_CPU}cube{cube}"


class Sizes(NamedTuple):
    """Bytes of a broadcast's messages: of a message to an M_CPU, of a message to a PE, and of an answer."""

    cube_bytes: int
    pe_bytes: int
    done_bytes: int


class Server:
    """CPU as a FIFO server. ``free_ps``: time at which the CPU has served all requests so far."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.free_ps: Ps = 0

    def serve(self, duration_ps: Ps) -> Ps:
        """Queue a request that arrives now and takes ``duration_ps``; return the time at which its service ends."""
        self.free_ps = max(self.free_ps, self._engine.now_ps) + duration_ps
        return self.free_ps


class ControlPath:
    """IO_CPU and the M_CPUs of one SIP. ``checker`` is None without ``--check-invariants``.

    Every hop is a transfer over the NoC on ``vc_compute`` and shares bandwidth with other traffic. Limit: the queue of
    an M_CPU is unbounded.
    """

    def __init__(
        self,
        engine: Engine,
        fabric: Transport,
        graph: RouteGraph,
        path: LaunchPath,
        recorder: Recorder,
        checker: FanOutChecker | None = None,
    ) -> None:
        self.engine = engine
        self.path = path
        self.recorder = recorder
        self.checker = checker
        self.io_cpu = Server(engine)
        self._fabric = fabric
        self._graph = graph
        self._m_cpus: dict[int, Server] = {}

    def m_cpu(self, cube: int) -> Server:
        """Return the M_CPU of a cube, which is built at its first use."""
        return self._m_cpus.setdefault(cube, Server(self.engine))

    def send(self, src: Node, dst: Node, nbytes: int, delay_ps: Ps, then: Callable[[], None]) -> None:
        """Send a message of ``nbytes`` after ``delay_ps``; call ``then`` when its last byte arrives."""
        train = self._fabric.train((src, "control"))
        self._fabric.start(train, self._graph.route(src, dst), nbytes, lambda _head, _tail: then(), delay_ps=delay_ps)


class Broadcast:
    """Broadcast of a message from IO_CPU to PEs ``places``, because of span ``cause``, and the gather of their answers.

    The M_CPUs of the cubes fan the message out. An M_CPU (ADR-0035) is a FIFO server that takes ``dispatch_ps`` for
    each of its PEs, in order, and ``m_gather_ps`` for each answer. IO_CPU (ADR-0036) is a FIFO server that takes
    ``io_gather_ps`` per cube's answer. An M_CPU handles answers of PEs in order of arrival, between dispatches of other
    broadcasts. A broadcast takes two events per cube and two per PE.

    ``at_pe`` makes a PE act on the message; :meth:`answer` reports that the PE is done. ``gathered(span)`` is called
    when IO_CPU has taken the answers of all cubes.
    """

    def __init__(
        self,
        control: ControlPath,
        places: Sequence[Place],
        sizes: Sizes,
        at_pe: AtPe,
        gathered: Callable[[int], None],
        cause: int,
    ) -> None:
        self._control = control
        self._engine, self._recorder, self._path = control.engine, control.recorder, control.path
        self._sizes = sizes
        self._at_pe = at_pe
        self._gathered = gathered
        self._cubes = by_cube(places)
        self._answers: dict[int, list[int]] = {cube: [] for cube in self._cubes}
        self._of_cubes: list[int] = []
        self._checker = control.checker
        if self._checker is not None:
            self._checker.sent(self, places)
        now_ps = self._engine.now_ps
        for cube in self._cubes:
            control.send(IO_CPU_NODE, m_cpu(cube), sizes.cube_bytes, 0, partial(self._at_cube, cube, now_ps, cause))

    def _at_cube(self, cube: int, sent_ps: Ps, cause: int) -> None:
        """Dispatch the message from a cube's M_CPU to its PEs, one after the other."""
        now_ps = self._engine.now_ps
        span = self._recorder.span(m_cpu_name(cube), TO_CUBE, sent_ps, now_ps, cause, cube, self._sizes.cube_bytes)
        for index, pe in enumerate(self._cubes[cube]):
            out_ps = self._control.m_cpu(cube).serve(self._path.dispatch_ps)
            then = partial(self._at_one, (cube, pe), now_ps, out_ps, index, span)
            self._control.send(m_cpu(cube), Node("pe", cube, pe), self._sizes.pe_bytes, out_ps - now_ps, then)

    def _at_one(self, place: Place, here_ps: Ps, out_ps: Ps, index: int, cause: int) -> None:
        name, now_ps = m_cpu_name(place[0]), self._engine.now_ps
        dispatched = self._recorder.span(name, DISPATCH, here_ps, out_ps, cause, index + 1)
        self._at_pe(place, self._recorder.span(name, TO_PE, out_ps, now_ps, dispatched, *place, self._sizes.pe_bytes))

    def answer(self, place: Place, cause: int) -> None:
        """Send the answer of the PE at ``place``, which is done; span ``cause``, which ends now, is the cause."""
        if self._checker is not None:
            self._checker.answered(self, place)
        cube, pe = place
        then = partial(self._of_pe, place, self._engine.now_ps, cause)
        self._control.send(Node("pe", cube, pe), m_cpu(cube), self._sizes.done_bytes, 0, then)

    def _of_pe(self, place: Place, sent_ps: Ps, cause: int) -> None:
        cube, now_ps = place[0], self._engine.now_ps
        answers, done_bytes = self._answers[cube], self._sizes.done_bytes
        answers.append(self._recorder.span(m_cpu_name(cube), OF_PE, sent_ps, now_ps, cause, *place, done_bytes))
        out_ps = self._control.m_cpu(cube).serve(self._path.m_gather_ps)
        if len(answers) == len(self._cubes[cube]):
            then = partial(self._of_cube, cube, now_ps, out_ps)
            self._control.send(m_cpu(cube), IO_CPU_NODE, done_bytes, out_ps - now_ps, then)

    def _of_cube(self, cube: int, here_ps: Ps, out_ps: Ps) -> None:
        name, now_ps, answers = m_cpu_name(cube), self._engine.now_ps, self._answers[cube]
        gathered = self._recorder.span(name, GATHER, here_ps, out_ps, answers[-1], *answers)
        done_bytes = self._sizes.done_bytes
        self._of_cubes.append(self._recorder.span(name, OF_CUBE, out_ps, now_ps, gathered, cube, done_bytes))
        done_ps = self._control.io_cpu.serve(self._path.io_gather_ps)
        if len(self._of_cubes) == len(self._cubes):
            self._engine.at(done_ps, partial(self._all, now_ps))

    def _all(self, here_ps: Ps) -> None:
        if self._checker is not None:
            self._checker.gathered(self)
        last = self._of_cubes[-1]
        self._gathered(self._recorder.span("io_cpu", GATHER, here_ps, self._engine.now_ps, last, *self._of_cubes))


Begin = Callable[[Place, int], None]
"""Function that starts the kernel of a PE now, because of a span."""
HOST, IO_CPU = "host", "io_cpu"
SKEW, TO_IO_CPU, TAKE, MARGIN, START, END = (
    "start skew",
    "to IO_CPU",
    "launch",
    "start margin",
    "start",
    "end of a launch",
)
"""Names of spans."""


class Launch(ABC):
    """Launch in progress.

    ``target_ps``: start time that IO_CPU has stamped; None without a stamp. ``late_ps``: time from ``target_ps`` to the
    start of the latest kernel.
    """

    target_ps: Ps | None = None
    late_ps: Ps = 0

    @abstractmethod
    def ended(self, place: Place, span: int) -> None:
        """Note that the kernel of a PE has ended now, with ``span``."""


class DirectLaunch(Launch):
    """Launch without a control path: all kernels start at once, and the host sees the last end without delay."""

    def __init__(self, places: Sequence[Place], begin: Begin, done: Callable[[int], None], cause: int) -> None:
        self._running = len(places)
        self._done = done
        for place in places:
            begin(place, cause)
        if not places:
            done(cause)

    def ended(self, place: Place, span: int) -> None:
        self._running -= 1
        if not self._running:
            self._done(span)


class RoutedLaunch(Launch):
    """Launch over the control path. ``rank`` selects the start skew. ``run``: index of its collective, or None.

    The host's message arrives at IO_CPU after the host latency and the SIP's start skew. IO_CPU takes ``launch_ns``,
    stamps one start for all cubes (``target_ps``), and fans the launch out. A PE whose message arrives earlier waits
    for this time; a PE whose message arrives later starts late. A PE answers when its kernel ends. The host sees the
    end of the launch one host latency after IO_CPU has gathered all answers. Limit: a launch that waits for an earlier
    launch on the same PEs leaves the host when the host sees the end of the earlier launch.
    """

    def __init__(
        self,
        control: ControlPath,
        rank: int,
        places: Sequence[Place],
        begin: Begin,
        done: Callable[[int], None],
        cause: int,
        run: int | None,
    ) -> None:
        self._control = control
        self._engine, self._recorder, self._path = control.engine, control.recorder, control.path
        self._places = places
        self._begin = begin
        self._done = done
        self._run = run
        self._waiting: list[tuple[Place, int]] = []
        self._broadcast: Broadcast | None = None
        self._stamped_ps = self._target_ps = 0
        self._margin = 0
        now_ps, skew_ps = self._engine.now_ps, self._path.skew_ps(rank)
        there_ps = now_ps + skew_ps + self._path.host_ps
        self._engine.at(there_ps, lambda: self._at_io_cpu(now_ps, now_ps + skew_ps, cause))

    def _at_io_cpu(self, made_ps: Ps, left_ps: Ps, cause: int) -> None:
        here_ps, span = self._engine.now_ps, cause
        if left_ps > made_ps:
            span = self._recorder.span(HOST, SKEW, made_ps, left_ps, span)
        span = self._recorder.span(HOST, TO_IO_CPU, left_ps, here_ps, span)
        taken_ps = self._control.io_cpu.serve(self._path.launch_ps)
        self._engine.at(taken_ps, lambda: self._stamp(here_ps, span))

    def _stamp(self, here_ps: Ps, cause: int) -> None:
        now_ps, sizes = self._engine.now_ps, self._path.launch
        span = self._recorder.span(IO_CPU, TAKE, here_ps, now_ps, cause)
        self._stamped_ps, self._stamp_span = now_ps, span
        if not self._places:
            self._gathered(span)
            return
        self.target_ps = self._target_ps = now_ps + self._path.margin_ps(self._places)
        self._engine.at(self._target_ps, self._start)
        self._broadcast = Broadcast(
            self._control,
            self._places,
            Sizes(sizes.cube_bytes, sizes.pe_bytes, sizes.done_bytes),
            self._at_pe,
            self._gathered,
            span,
        )

    def _start(self) -> None:
        """Start all PEs that have their message, at the stamped time."""
        places = [place for pes in self._places for place in pes]
        self._margin = self._recorder.span(IO_CPU, MARGIN, self._stamped_ps, self._target_ps, self._stamp_span, *places)
        waiting, self._waiting = sorted(self._waiting), []
        for place, span in waiting:
            self._start_one(place, span, self._margin)

    def _at_pe(self, place: Place, span: int) -> None:
        if not self._margin:
            self._waiting.append((place, span))
            return
        self.late_ps = max(self.late_ps, self._engine.now_ps - self._target_ps)
        self._start_one(place, span, span)

    def _start_one(self, place: Place, message: int, cause: int) -> None:
        """Start a kernel. The later of two events is its cause: the arrival of its message, or the stamped time."""
        now_ps = self._engine.now_ps
        if self._control.checker is not None:
            self._control.checker.starts(place, now_ps, self._target_ps)
        name = m_cpu_name(place[0])
        self._begin(place, self._recorder.span(name, START, now_ps, now_ps, cause, message, self._margin))

    def ended(self, place: Place, span: int) -> None:
        assert self._broadcast is not None
        self._broadcast.answer(place, span)

    def _gathered(self, cause: int) -> None:
        self._broadcast = None  # break the reference cycle
        sent_ps = self._engine.now_ps
        self._engine.at(sent_ps + self._path.host_ps, lambda: self._at_host(sent_ps, cause))

    def _at_host(self, sent_ps: Ps, cause: int) -> None:
        now_ps = self._engine.now_ps
        self._done(self._recorder.span(HOST, END, sent_ps, now_ps, cause, self._run))
