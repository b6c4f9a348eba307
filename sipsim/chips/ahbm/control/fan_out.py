"""A message from IO_CPU to PEs, fanned out by the M_CPUs of their cubes, and the gathering of their answers.

Launches go this way; entries of page tables and copies could, but take no time yet. Every hop is a transfer over the
NoC on ``vc_compute``, with its transit costs and other traffic. An M_CPU (ADR-0035) serves one message after the other:
``dispatch_ps`` for each of its PEs, in order, and ``m_gather_ps`` for each answer; so does IO_CPU (ADR-0036) with
``io_gather_ps``. A round takes two events a cube and two a PE.

Limits: an M_CPU holds any number of messages, and answers of PEs are handled in the order in which they come, between
dispatches of other rounds.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from sipsim.chips.ahbm.control.checks import FanOutChecker
from sipsim.chips.ahbm.control.launch_path import IO_CPU_NODE, LaunchPath, Place, by_cube, m_cpu
from sipsim.core.engine import Engine
from sipsim.fabric.graph.graph import Node, RouteGraph
from sipsim.fabric.transport.transport import Transport
from sipsim.records.recorder import Recorder

Ps = int
AtPe = Callable[[Place, int], None]
"""Called when a round's message is at a PE, with the span that brought it."""
TO_CUBE, TO_PE, OF_PE, OF_CUBE = "to M_CPU", "to PE", "answer of PE", "answer of M_CPU"
DISPATCH, GATHER = "dispatch", "gather"
"""Names of spans."""
M_CPU = "m_cpu."
"""The beginning of the names of M_CPUs, which are the components of spans."""


def m_cpu_name(cube: int) -> str:
    """What the M_CPU of a cube is called in spans."""
    return f"{M_CPU}cube{cube}"


class Sizes(NamedTuple):
    """Bytes of a round's messages to an M_CPU, to a PE, and of an answer."""

    cube_bytes: int
    pe_bytes: int
    done_bytes: int


class Server:
    """A CPU that serves one thing after the other. ``free_ps``: when it has served all so far."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.free_ps: Ps = 0

    def serve(self, duration_ps: Ps) -> Ps:
        """Something is here now; when it has been served."""
        self.free_ps = max(self.free_ps, self._engine.now_ps) + duration_ps
        return self.free_ps


class ControlPath:
    """IO_CPU and the M_CPUs of one SIP. ``checker``: with ``--check-invariants``."""

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
        """The M_CPU of a cube; made at its first use."""
        return self._m_cpus.setdefault(cube, Server(self.engine))

    def send(self, src: Node, dst: Node, nbytes: int, delay_ps: Ps, then: Callable[[], None]) -> None:
        """Carry a message that leaves so much later; ``then`` when its last byte is there."""
        self._fabric.start(self._graph.route(src, dst), nbytes, lambda _head, _tail: then(), delay_ps=delay_ps)


class Round:
    """One message from IO_CPU to each of ``places``, released by span ``cause``, and their answers.

    ``at_pe`` has each PE do what it is told, and :meth:`answer` tells that it has. ``gathered(span)`` when IO_CPU has
    taken the answers of all cubes.
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
        """M_CPU takes its PEs one after the other."""
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
        """A PE has done what it was told, by span ``cause``, which ends now."""
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
