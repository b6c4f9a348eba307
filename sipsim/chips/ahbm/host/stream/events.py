"""Events: points behind the launches that a host program has made, and the simulated times between them.

Names, defaults and kinds of errors are those of ``torch.Event``. There are no streams: an event stands behind all
launches and collectives of its SIP that were made before it.
"""

from sipsim.chips.ahbm.host.stream.kernel_queue import KernelQueue, Work
from sipsim.chips.api.bridge.base import host_call

Ps = int
PS_PER_MS = 10**9


class Event:
    """A point in the launches of ``queue``, once :meth:`record` has been called; the last call counts.

    Its time is that at which the last launch before it has ended, as the host knows it, or that of the call if all had
    ended: host code takes no time.
    """

    def __init__(self, queue: KernelQueue, enable_timing: bool = False) -> None:
        self._queue = queue
        self.bridge = queue.bridge
        self.enable_timing = enable_timing
        self._is_recorded = False
        self._since_ps: Ps = 0
        self._before: list[Work] = []

    @host_call
    def record(self) -> None:
        """Stand behind all launches and collectives that were made so far on this SIP."""
        self._queue.host_task()
        self._since_ps, self._before = self._queue.now_ps, self._queue.unfinished()
        self._is_recorded = True

    def query(self) -> bool:
        """Whether all that was launched before it has ended; True where it was never recorded, as in PyTorch."""
        return all(work.is_completed() for work in self._before)

    @host_call
    def synchronize(self) -> None:
        """Block the host script until all that was launched before it has ended."""
        for work in self._before:
            work.wait()

    def wait(self) -> None:
        """Let what is launched from now on start behind it. As host code takes no time, the host itself waits."""
        self.synchronize()

    @property
    def time_ps(self) -> Ps:
        """The simulated time of the point, in ps.

        Raises:
            RuntimeError: before it is recorded, or before all that was launched before it has ended.
        """
        if not self._is_recorded:
            raise RuntimeError("the event must be recorded before it has a time; call record()")
        if not self.query():
            raise RuntimeError("the event must be completed before it has a time; call synchronize()")
        return max([self._since_ps, *(work.end_ps or 0 for work in self._before)])

    def elapsed_time(self, end_event: "Event") -> float:
        """Simulated milliseconds from this event to ``end_event``, exact in ``time_ps``.

        Raises:
            RuntimeError: unless both are made with ``enable_timing=True``, recorded and completed.
        """
        both = self, end_event
        if not all(event.enable_timing for event in both):
            raise RuntimeError("elapsed_time needs two events that were made with enable_timing=True")
        if not all(event._is_recorded for event in both):
            raise RuntimeError("elapsed_time needs two recorded events; call record() on both")
        if not all(event.query() for event in both):
            raise RuntimeError("elapsed_time needs two completed events; call synchronize() on the end")
        return (end_event.time_ps - self.time_ps) / PS_PER_MS

    def __repr__(self) -> str:
        return f"Event({f'time_ps={self.time_ps}' if self._is_recorded and self.query() else 'not completed'})"
