"""Launch of kernels: from the host over IO_CPU (ADR-0036) and M_CPUs (ADR-0035) to PEs, and back.

A config without a control path launches at once (:class:`DirectLaunch`).
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

from sipsim.chips.ahbm.control.fan_out import Broadcast, ControlPath, FanOut, HostRequest, Sizes
from sipsim.chips.ahbm.control.path import (
    END,
    IO_CPU,
    MARGIN,
    START,
    TAKE,
    Place,
    m_cpu_name,
)
from sipsim.core.processes import Steps

Ps = int
Begin = Callable[[Place, int], None]
"""Function that starts the kernel of a PE now, because of a span."""


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


class RoutedLaunch(HostRequest, Launch):
    """Launch over the control path. ``rank`` selects the start skew. ``run``: index of its collective, or None.

    The host's message arrives at IO_CPU after the host latency and the SIP's start skew. IO_CPU takes ``launch_ns``,
    stamps one start for all cubes (``target_ps``), and fans the launch out. A PE whose message arrives earlier waits
    for this time; a PE whose message arrives later starts late. A PE answers when its kernel ends. The host sees the
    end of the launch one host latency after IO_CPU has gathered all answers. Limit: a launch that waits for an earlier
    launch on the same PEs leaves the host when the host sees the end of the earlier launch.
    """

    span_names = TAKE, END

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
        super().__init__(control, done, cause, control.path.skew_ps(rank), (run,))
        self._places = places
        self._begin = begin
        self._waiting: list[tuple[Place, int]] = []
        self._margin = 0

    def _fan_out(self, cause: int) -> FanOut | None:
        """Stamp the start of the launch, and fan it out."""
        if not self._places:
            self._gathered(cause)
            return None
        sizes = self._path.launch
        self._control.env.process(self._start_together(cause))
        return Broadcast(
            self._control,
            TAKE,
            self._places,
            Sizes(sizes.cube_bytes, sizes.pe_bytes, sizes.done_bytes),
            self._at_pe,
            self._gathered,
            cause,
        )

    def _start_together(self, cause: int) -> Steps:
        """Start all PEs that have their message at the stamped time, ``target_ps``."""
        stamped_ps = self._engine.now_ps
        self.target_ps = stamped_ps + self._path.margin_ps(self._places)
        yield self._control.env.timeout(self.target_ps - stamped_ps)
        places = [place for pes in self._places for place in pes]
        self._margin = self._recorder.span(IO_CPU, MARGIN, stamped_ps, self.target_ps, cause, *places)
        waiting, self._waiting = sorted(self._waiting), []
        for place, span in waiting:
            self._start_one(place, span, self._margin)

    def _at_pe(self, place: Place, span: int) -> None:
        if not self._margin:
            self._waiting.append((place, span))
            return
        assert self.target_ps is not None
        self.late_ps = max(self.late_ps, self._engine.now_ps - self.target_ps)
        self._start_one(place, span, span)

    def _start_one(self, place: Place, message: int, cause: int) -> None:
        """Start a kernel. The later of two events is its cause: the arrival of its message, or the stamped time."""
        now_ps = self._engine.now_ps
        if self._control.checker is not None:
            assert self.target_ps is not None
            self._control.checker.starts(place, now_ps, self.target_ps)
        name = m_cpu_name(place[0])
        self._begin(place, self._recorder.span(name, START, now_ps, now_ps, cause, message, self._margin))

    def ended(self, place: Place, span: int) -> None:
        assert self._under_way is not None
        self._under_way.answer(place, span)
