"""Fan-out of a request from IO_CPU over M_CPUs to PEs, and the gather of their answers, as SimPy processes."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import cached_property, partial
from typing import Any, ClassVar, NamedTuple

import simpy

from sipsim.chips.ahbm.control.path import (
    DISPATCH,
    GATHER,
    HOST,
    IO_CPU,
    OF_CUBE,
    OF_PE,
    SKEW,
    TO_CUBE,
    TO_IO_CPU,
    TO_PE,
    LaunchPath,
    Place,
    by_cube,
    m_cpu,
    m_cpu_name,
    part_of,
)
from sipsim.chips.ahbm.mesh import IO_CPU_NODE
from sipsim.core.engine import Engine
from sipsim.core.errors import InvariantViolation
from sipsim.core.processes import Steps
from sipsim.fabric.graph import Node, RouteGraph
from sipsim.fabric.transport import Transport
from sipsim.records.oplog import record_kind
from sipsim.records.recorder import Recorder

Ps = int


class FanOutChecker:
    """Checker of all fan-outs of one SIP (``--check-invariants``): tracks which targets got a message and answered.

    Raises:
        InvariantViolation: from every method.
    """

    def __init__(self, sip: int) -> None:
        self._sip = sip
        self._pending: dict[Any, set[Place]] = {}

    def sent(self, round_: object, places: Sequence[Place]) -> None:
        """Check that a fan-out sends its message to each of these targets once."""
        self._pending[round_] = set(places)
        if len(self._pending[round_]) < len(places):
            raise self._violation(f"a fan-out sends its message to a target twice: {sorted(places)}")

    def answered(self, round_: object, place: Place) -> None:
        """Check that a target answers a message of the fan-out, and answers only once."""
        if place not in self._pending.get(round_, ()):
            raise self._violation(f"cube {place[0]}, target {place[1]} answers a message twice, or before its arrival")
        self._pending[round_].remove(place)

    def gathered(self, round_: object) -> None:
        """Check that all targets have answered when IO_CPU has gathered a fan-out's answers."""
        missing = self._pending.pop(round_)
        if missing:
            raise self._violation(f"IO_CPU gathered a request before (cube, target) {sorted(missing)} answered")

    def starts(self, place: Place, now_ps: Ps, target_ps: Ps) -> None:
        """Check that a kernel that starts now, at ``now_ps``, does not start before ``target_ps``."""
        if now_ps < target_ps:
            where = f"cube {place[0]}, PE {place[1]}"
            raise self._violation(f"kernel on {where} starts at {now_ps} ps, before its stamped start, {target_ps} ps")

    def _violation(self, what: str) -> InvariantViolation:
        return InvariantViolation(f"SIP {self._sip}: {what}")


class Cpu:
    """Management CPU as a SimPy process: it handles the requests in its inbox one after the other, in their order."""

    def __init__(self, env: simpy.Environment) -> None:
        self._inbox = simpy.Store(env)
        env.process(self._run())

    def post(self, steps: Steps) -> None:
        """Put a request that arrives now into the inbox: ``steps`` are what the CPU does for it."""
        self._inbox.put(steps)

    def _run(self) -> Steps:
        while True:
            steps = yield self._inbox.get()
            yield from steps


MESSAGE = record_kind("control.message", "request", "from", "to", "nbytes")


class ControlPath:
    """IO_CPU and the M_CPUs of one SIP. ``checker`` is None without ``--check-invariants``.

    Every hop is a transfer over the NoC on ``vc_compute`` and shares bandwidth with other traffic. Limit: the inbox of
    a CPU is unbounded.
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
        self.env = engine.env
        self.path = path
        self.recorder = recorder
        self.checker = checker
        self.fabric = fabric
        self._graph = graph
        self._m_cpus: dict[int, Cpu] = {}

    @cached_property
    def io_cpu(self) -> Cpu:
        """IO_CPU, which is built at its first use."""
        return Cpu(self.env)

    def m_cpu(self, cube: int) -> Cpu:
        """Return the M_CPU of a cube, which is built at its first use."""
        if cube not in self._m_cpus:
            self._m_cpus[cube] = Cpu(self.env)
        return self._m_cpus[cube]

    def send(self, request: str, src: Node, dst: Node, nbytes: int, then: Callable[[], None]) -> None:
        """Send a message of a ``request`` now; call ``then`` when its last byte arrives. ``--oplog`` lists it."""
        sent_ps = self.engine.now_ps

        def arrived(_head_ps: Ps, tail_ps: Ps) -> None:
            cube, place = next((node.cube, node.place) for node in (dst, src) if node.cube >= 0)
            self.recorder.oplog.note((MESSAGE, sent_ps, tail_ps, cube, place, request, src, dst, nbytes))
            then()

        train = self.fabric.train((src, "control"))
        self.fabric.start(train, self._graph.route(src, dst), nbytes, arrived)


class Sizes(NamedTuple):
    """Bytes of the messages of a fan-out: of a message to an M_CPU, of a message to a PE, and of an answer."""

    cube_bytes: int
    pe_bytes: int
    done_bytes: int


class FanOut(ABC):
    """Fan-out of a ``request`` from IO_CPU to targets, because of span ``cause``, and the gather of their answers.

    ``targets``: (cube, number) of each. :meth:`answer` takes the answer of a target, which is done.
    An M_CPU (ADR-0035) takes ``dispatch_ps`` for each target of its cube, in order, and ``m_gather_ps`` for each
    answer. IO_CPU (ADR-0036) takes ``io_gather_ps`` per cube's answer. ``gathered(span)`` is called when IO_CPU has
    taken the answers of all cubes.
    """

    def __init__(
        self,
        control: ControlPath,
        request: str,
        targets: Sequence[Place],
        sizes: Sizes,
        gathered: Callable[[int], None],
        cause: int,
    ) -> None:
        self._control = control
        self._send = partial(control.send, request)
        self._request = request
        self._engine, self._recorder, self._path = control.engine, control.recorder, control.path
        self._sizes = sizes
        self._gathered = gathered
        self._cubes = by_cube(targets)
        self._answers: dict[int, list[int]] = {cube: [] for cube in self._cubes}
        self._of_cubes: list[int] = []
        self._checker = control.checker
        if self._checker is not None:
            self._checker.sent(self, targets)
        now_ps = self._engine.now_ps
        for cube in self._cubes:
            self._send(IO_CPU_NODE, m_cpu(cube), sizes.cube_bytes, partial(self._at_cube, cube, now_ps, cause))

    def _name(self, cube: int) -> str:
        """Return the component of spans of a cube's M_CPU for this request."""
        return part_of(m_cpu_name(cube), self._request)

    @abstractmethod
    def _hand_over(self, target: Place, cause: int) -> None:
        """Give the request to a target now, after the span ``cause`` of its dispatch."""

    def _at_cube(self, cube: int, sent_ps: Ps, cause: int) -> None:
        now_ps = self._engine.now_ps
        span = self._recorder.span(self._name(cube), TO_CUBE, sent_ps, now_ps, cause, cube, self._sizes.cube_bytes)
        self._control.m_cpu(cube).post(self._dispatch(cube, now_ps, span))

    def _dispatch(self, cube: int, here_ps: Ps, cause: int) -> Steps:
        """Dispatch the request from a cube's M_CPU to the cube's targets, one after the other."""
        for index, number in enumerate(self._cubes[cube]):
            yield self._control.env.timeout(self._path.dispatch_ps)
            now_ps = self._engine.now_ps
            span = self._recorder.span(self._name(cube), DISPATCH, here_ps, now_ps, cause, index + 1)
            self._hand_over((cube, number), span)

    def answer(self, target: Place, span: int) -> None:
        """Take a target's answer, which has reached its M_CPU now with ``span``."""
        if self._checker is not None:
            self._checker.answered(self, target)
        self._control.m_cpu(target[0]).post(self._count(target[0], self._engine.now_ps, span))

    def _count(self, cube: int, here_ps: Ps, span: int) -> Steps:
        """Count an answer at a cube's M_CPU; after the last one, send the cube's answer."""
        yield self._control.env.timeout(self._path.m_gather_ps)
        answers, now_ps = self._answers[cube], self._engine.now_ps
        answers.append(span)
        if len(answers) == len(self._cubes[cube]):
            gathered = self._recorder.span(self._name(cube), GATHER, here_ps, now_ps, span, *answers)
            then = partial(self._of_cube, cube, now_ps, gathered)
            self._send(m_cpu(cube), IO_CPU_NODE, self._sizes.done_bytes, then)

    def _of_cube(self, cube: int, sent_ps: Ps, cause: int) -> None:
        now_ps, done_bytes = self._engine.now_ps, self._sizes.done_bytes
        span = self._recorder.span(self._name(cube), OF_CUBE, sent_ps, now_ps, cause, cube, done_bytes)
        self._control.io_cpu.post(self._count_cube(now_ps, span))

    def _count_cube(self, here_ps: Ps, span: int) -> Steps:
        """Count a cube's answer at IO_CPU; after the last one, end the fan-out."""
        yield self._control.env.timeout(self._path.io_gather_ps)
        self._of_cubes.append(span)
        if len(self._of_cubes) == len(self._cubes):
            if self._checker is not None:
                self._checker.gathered(self)
            now_ps = self._engine.now_ps
            self._gathered(
                self._recorder.span(part_of(IO_CPU, self._request), GATHER, here_ps, now_ps, span, *self._of_cubes)
            )


class HostRequest(ABC):
    """Request of the host: over IO_CPU to the fan-out that :meth:`_fan_out` starts, and back when it is gathered.

    The request leaves the host ``skew_ps`` from now, because of span ``cause``; the times between host and IO_CPU are
    the host latency, and IO_CPU takes ``launch_ns`` for the request. ``done(span)`` is called when the host sees its
    end. ``span_names``: names of the spans of IO_CPU's work, which is that of the request, and of the end; ``facts``:
    further facts of the latter.
    """

    span_names: ClassVar[tuple[str, str]]

    def __init__(
        self,
        control: ControlPath,
        done: Callable[[int], None],
        cause: int,
        skew_ps: Ps = 0,
        facts: tuple[Any, ...] = (),
    ) -> None:
        self._control = control
        self._engine, self._recorder, self._path = control.engine, control.recorder, control.path
        self._done = done
        self._facts = facts
        self._under_way: FanOut | None = None
        self._host, self._io_cpu = (part_of(name, self.span_names[0]) for name in (HOST, IO_CPU))
        control.env.process(self._to_io_cpu(skew_ps, cause))

    @abstractmethod
    def _fan_out(self, cause: int) -> FanOut | None:
        """Fan the request out now, after IO_CPU's work with span ``cause``; the fan-out ends by :meth:`_gathered`."""

    def _to_io_cpu(self, skew_ps: Ps, cause: int) -> Steps:
        made_ps, span = self._engine.now_ps, cause
        left_ps = made_ps + skew_ps
        yield self._control.env.timeout(skew_ps + self._path.host_ps)
        if skew_ps:
            span = self._recorder.span(self._host, SKEW, made_ps, left_ps, span)
        here_ps = self._engine.now_ps
        span = self._recorder.span(self._host, TO_IO_CPU, left_ps, here_ps, span)
        self._control.io_cpu.post(self._take(here_ps, span))

    def _take(self, here_ps: Ps, cause: int) -> Steps:
        yield self._control.env.timeout(self._path.launch_ps)
        span = self._recorder.span(self._io_cpu, self.span_names[0], here_ps, self._engine.now_ps, cause)
        self._under_way = self._fan_out(span)

    def _gathered(self, cause: int) -> None:
        self._under_way = None  # break the reference cycle
        self._control.env.process(self._to_host(cause))

    def _to_host(self, cause: int) -> Steps:
        sent_ps, end = self._engine.now_ps, self.span_names[1]
        yield self._control.env.timeout(self._path.host_ps)
        self._done(self._recorder.span(self._host, end, sent_ps, self._engine.now_ps, cause, *self._facts))


AtPe = Callable[[Place, int], None]
"""Callback for the arrival of a message at a PE, with the span of the message."""


class Broadcast(FanOut):
    """Fan-out to PEs: a message to each PE, and its answer.

    ``at_pe`` makes a PE act on the message; :meth:`answer` reports that the PE is done.
    """

    def __init__(
        self,
        control: ControlPath,
        request: str,
        places: Sequence[Place],
        sizes: Sizes,
        at_pe: AtPe,
        gathered: Callable[[int], None],
        cause: int,
    ) -> None:
        super().__init__(control, request, places, sizes, gathered, cause)
        self._at_pe = at_pe

    def _hand_over(self, target: Place, cause: int) -> None:
        then = partial(self._at_one, target, self._engine.now_ps, cause)
        self._send(m_cpu(target[0]), Node("pe", *target), self._sizes.pe_bytes, then)

    def _at_one(self, place: Place, sent_ps: Ps, cause: int) -> None:
        name, now_ps = self._name(place[0]), self._engine.now_ps
        self._at_pe(place, self._recorder.span(name, TO_PE, sent_ps, now_ps, cause, *place, self._sizes.pe_bytes))

    def answer(self, target: Place, span: int) -> None:
        """Send the answer of a PE, which is done, to its M_CPU, because of ``span``, which ends now."""
        then = partial(self._of_pe, target, self._engine.now_ps, span)
        self._send(Node("pe", *target), m_cpu(target[0]), self._sizes.done_bytes, then)

    def _of_pe(self, place: Place, sent_ps: Ps, cause: int) -> None:
        name, now_ps = self._name(place[0]), self._engine.now_ps
        span = self._recorder.span(name, OF_PE, sent_ps, now_ps, cause, *place, self._sizes.done_bytes)
        super().answer(place, span)
