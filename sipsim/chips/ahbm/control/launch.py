"""How a launch reaches its PEs: over IO_CPU and the M_CPUs, or at once where the config has no such path.

The host's message is at IO_CPU after the host's latency (and its SIP's start skew). IO_CPU takes ``launch_ns`` for it,
stamps one start for all cubes (``target_ps``), and fans it out. A PE that has its message earlier waits for that time;
one that gets it later starts late. Each kernel's end is an answer; the host knows of the last one after IO_CPU has
gathered all, and after its latency once more.

Limit: a launch that waits for another one on its PEs leaves the host when that one's end is known there.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

from sipsim.chips.ahbm.control.fan_out import ControlPath, Round, Sizes, m_cpu_name
from sipsim.chips.ahbm.control.launch_path import Place

Ps = int
Begin = Callable[[Place, int], None]
"""Start the kernel of a PE now, released by a span."""
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
    """One launch under way.

    ``target_ps``: the start that IO_CPU has stamped, None without one. ``late_ps``: by how much the latest kernel
    started after it.
    """

    target_ps: Ps | None = None
    late_ps: Ps = 0

    @abstractmethod
    def ended(self, place: Place, span: int) -> None:
        """The kernel of a PE has ended now, by ``span``."""


class DirectLaunch(Launch):
    """All kernels start at once, and the host knows the last end when it comes to pass."""

    def __init__(self, places: Sequence[Place], begin: Begin, done: Callable[[int], None], cause: int) -> None:
        self._left = len(places)
        self._done = done
        for place in places:
            begin(place, cause)
        if not places:
            done(cause)

    def ended(self, place: Place, span: int) -> None:
        self._left -= 1
        if not self._left:
            self._done(span)


class RoutedLaunch(Launch):
    """A launch over the control path. ``rank``: whose start skew it has; ``run``: the collective that it belongs to."""

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
        self._round: Round | None = None
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
        self._round = Round(
            self._control,
            self._places,
            Sizes(sizes.cube_bytes, sizes.pe_bytes, sizes.done_bytes),
            self._at_pe,
            self._gathered,
            span,
        )

    def _start(self) -> None:
        """The stamped time: all PEs that know of the launch start."""
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
        """Start a kernel, which waits for its message and for the stamped time; the later one is the cause."""
        now_ps = self._engine.now_ps
        if self._control.checker is not None:
            self._control.checker.starts(place, now_ps, self._target_ps)
        name = m_cpu_name(place[0])
        self._begin(place, self._recorder.span(name, START, now_ps, now_ps, cause, message, self._margin))

    def ended(self, place: Place, span: int) -> None:
        assert self._round is not None
        self._round.answer(place, span)

    def _gathered(self, cause: int) -> None:
        self._round = None  # it refers to this one, and is over
        sent_ps = self._engine.now_ps
        self._engine.at(sent_ps + self._path.host_ps, lambda: self._at_host(sent_ps, cause))

    def _at_host(self, sent_ps: Ps, cause: int) -> None:
        now_ps = self._engine.now_ps
        self._done(self._recorder.span(HOST, END, sent_ps, now_ps, cause, self._run))
