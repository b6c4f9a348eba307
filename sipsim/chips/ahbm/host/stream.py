"""Launches of one SIP, and the works, futures and events with which a host program waits for launches."""

import weakref
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Sequence
from itertools import takewhile
from typing import Any, NamedTuple

from sipsim.chips.ahbm.address import PePlace
from sipsim.chips.ahbm.control.launch import Launch
from sipsim.chips.ahbm.host.layout import TensorBase
from sipsim.chips.ahbm.host.memory import AddressSpace, address_translator
from sipsim.chips.ahbm.host.tensor import TensorList
from sipsim.chips.ahbm.sip import Sip
from sipsim.chips.ahbm.tl.language import TL, run_kernel
from sipsim.chips.api.bridge import host_call
from sipsim.collectives.call import Call, CallKey, OpenCall
from sipsim.core.task import Task
from sipsim.records.report import MOST_LAUNCHES, TL_WORDS, KernelUse, LaunchRecord, places_text


class WeakTensors:
    """Weak references to the tensors that a launch writes: a script that drops a tensor frees its memory."""

    def __init__(self, result: Any) -> None:
        tensors = result.tensors if isinstance(result, TensorList) else [] if result is None else [result]
        self._references = [weakref.ref(tensor) for tensor in tensors]

    def tensors(self) -> list[Any]:
        """Return the tensors.

        Raises:
            RuntimeError: when the script has dropped a tensor.
        """
        tensors = [reference() for reference in self._references]
        if any(each is None for each in tensors):
            raise RuntimeError("the script has dropped a tensor of this collective; keep a reference to each tensor")
        return tensors


class Future:
    """Result of an asynchronous collective, available once the launch has ended, or a function of another future."""

    def __init__(self, work: "Work", compute: Callable[[], Any]) -> None:
        self._work = work
        self._compute = compute
        self._values: list[Any] = []

    def done(self) -> bool:
        """Return whether the launch has ended, so that :meth:`value` returns."""
        return self._work.is_completed()

    def wait(self) -> Any:
        """Block the host script until the launch has ended, then return the value."""
        self._work.wait()
        return self.value()

    def value(self) -> Any:
        """Return the tensors of a collective as a list, or the result of the callback of :meth:`then`.

        Raises:
            RuntimeError: before the launch has ended.
        """
        if not self.done():
            raise RuntimeError("the future has no value yet; call its wait() first")
        if not self._values:
            self._values.append(self._compute())
        return self._values[0]

    def then(self, callback: Callable[["Future"], Any]) -> "Future":
        """Return a future whose value is ``callback(self)``. The callback is host code and runs once, in the first call
        of :meth:`wait` or :meth:`value` of the returned future.
        """
        return Future(self._work, lambda: callback(self))


Ps = int
NO_CALL = Call()
BEFORE_START = "launch"
"""Name, among the names of commands, of the time between a launch and the start of its kernels."""


class WorkTimes(NamedTuple):
    """Start and end of a launch, and ``kernels_ps`` of :class:`Work`, in ps."""

    span_ps: tuple[Ps, Ps]
    kernels_ps: tuple[Ps, Ps] | None


class Work:
    """Launch that a host program can wait for. Deadlock reports describe it by ``what``, results by ``name``.

    ``call``: the collective or message that the launch carries out; its tensors are dropped when the launch ends.
    ``is_reported``: the launch makes a separate result row. ``counts_for_row``: its kernel times count for a result
    row. ``run``: number of its collective on this SIP. ``span``: number of the span that caused its end.
    ``n_blockers``: the number of its PEs on which an earlier launch has not ended, plus the number of other launches
    for which it waits. ``followers``: launches that wait for this launch. ``kernels_ps``: start of the first and end of
    the last ended kernel. ``before_start_ps``: time from launch to kernel start, summed over all kernels.
    ``generation``: number of the kernels' queue pairs. ``outputs``: tensors that the launch writes. ``row``:
    name of its result row, or None. ``on_start``, ``on_end``: called with this launch when it starts, and when it ends.
    """

    def __init__(
        self,
        stream: "Stream",
        name: str,
        what: str = "a collective",
        call: Call = NO_CALL,
        counts_for_row: bool = False,
        is_reported: bool = False,
    ) -> None:
        self._stream = stream
        self.bridge = stream.bridge
        self.name = name
        self._what = what
        self.call = call
        self.counts_for_row = counts_for_row
        self.is_reported = is_reported
        self.kernel: Callable[..., None] | None = None
        self.args: tuple[Any, ...] = ()
        self.places: Sequence[PePlace] = ()
        self.n_blockers = 0
        self.followers: list[Work] = []
        self.kernels_ps: tuple[Ps, Ps] | None = None
        self.kernel_ps: Ps = 0
        self.before_start_ps: Ps = 0
        self.launch: Launch | None = None
        self.span = 0
        self.start_ps: Ps = 0
        self.end_ps: Ps | None = None
        self.generation = 0
        self.outputs = WeakTensors(None)
        self.run: int | None = None
        self.row: str | None = None
        self.on_start: Callable[[Work], None] | None = None
        self.on_end: Callable[[Work], None] | None = None
        self.waiter: Task | None = None

    def uses(self, storage: object) -> bool:
        """Return whether a tensor with this storage is an argument of the launch, or of its collective."""
        tensors = [*self.call.tensors(), *(each for each in self.args if isinstance(each, TensorBase))]
        return any(each is storage for tensor in tensors for each in tensor.storages())

    def is_completed(self) -> bool:
        """Return whether all kernels of the launch have ended."""
        return self.end_ps is not None

    @property
    def times(self) -> WorkTimes:
        """Times of the launch, which must have ended."""
        return WorkTimes((self.start_ps, self.end_ps or 0), self.kernels_ps)

    def get_future(self) -> Future:
        """Return a future of the tensors that the launch writes; the future keeps them alive.

        Raises:
            RuntimeError: when the script has dropped one of these tensors.
        """
        tensors = self.outputs.tensors()
        return Future(self, lambda: tensors)

    def result(self) -> list[Any]:
        """Return the tensors that the launch has written.

        Raises:
            RuntimeError: before the launch has ended, or when the script has dropped a tensor.
        """
        return list(self.get_future().value())

    @host_call
    def wait(self) -> bool:
        """Block the host script until the launch has ended; return True, as in PyTorch."""
        if not self.is_completed():
            host = self._stream.host_task()
            self.waiter = host
            host.wait(self._what)
        return True

    def note_kernel(self, start_ps: Ps, end_ps: Ps) -> None:
        """Add the times of a kernel that has ended."""
        first_ps, last_ps = self.kernels_ps or (start_ps, end_ps)
        self.kernels_ps = min(first_ps, start_ps), max(last_ps, end_ps)
        self.kernel_ps += end_ps - self.start_ps
        self.before_start_ps += start_ps - self.start_ps

    def drop(self) -> None:
        """Drop all references of a launch that has ended: a script that keeps the work must not keep its tensors."""
        self.on_start = self.on_end = self.waiter = self.kernel = self.launch = None
        self.args = ()
        self.followers = []
        self.call = self.call._replace(source=None, result=None)


class Stream:
    """All launches of one SIP: each PE runs its launches in the order in which the host made them.

    A launch waits for the earlier launches that share a PE with it, and overlaps with other launches. ``space``: the
    allocator of tensors. ``places``: the PEs of a launch that names no PEs. ``ended``: number of ended launches.
    ``records``: records of the first ``MOST_LAUNCHES`` ended launches.
    """

    def __init__(self, sip: Sip, space: AddressSpace, places: list[PePlace]) -> None:
        self._sip = sip
        self.space = space
        self.bridge = space.bridge
        self.places = places
        self.records: list[LaunchRecord] = []
        self.ended = 0
        self.host: Task | None = None
        self._queue_of: defaultdict[PePlace, deque[Work]] = defaultdict(deque)
        self._unfinished: dict[Work, None] = {}
        self._n_running = 0
        self._has_rows = False
        self._row: Work | None = None

    def host_task(self) -> Task:
        """Return the task of the host script, the only task that may launch and wait.

        Raises:
            RuntimeError: when a kernel calls this.
        """
        assert self.host is not None
        if not self.host.is_current:
            raise RuntimeError("a kernel cannot launch kernels or wait for a launch; call this in worker()")
        return self.host

    @property
    def now_ps(self) -> Ps:
        """The simulated time of the host script."""
        return self._sip.engine.now_ps

    def unfinished(self) -> list[Work]:
        """Return all launches that have not ended, in order."""
        return list(self._unfinished)

    def open_calls(self) -> list[OpenCall]:
        """Return the collectives and messages that have not ended, in order."""
        return [
            OpenCall(call.group, call.sips, call.number, call.text, self._calls_before(work))
            for work in self._unfinished
            if (call := work.call).number
        ]

    def _calls_before(self, work: Work) -> tuple[CallKey, ...]:
        """Return the last call before ``work`` on each of its PEs, and the other calls for which ``work`` waits."""
        calls = {each: None for each in self._unfinished if work in each.followers and each.call.number}
        for place in work.places:
            earlier = takewhile(lambda each: each is not work, self._queue_of[place])
            calls |= dict.fromkeys(deque((each for each in earlier if each.call.number), maxlen=1))
        return tuple((each.call.group, each.call.number) for each in calls)

    def launch(
        self,
        work: Work,
        kernel: Callable[..., None],
        args: tuple[Any, ...],
        places: Sequence[PePlace] | None = None,
        after: Iterable[Work] = (),
    ) -> None:
        """Queue ``kernel(*args, tl)`` on ``places``, behind earlier launches on these PEs and the launches ``after``.

        Tensors among ``args`` are passed as typed addresses, and stay allocated until the launch has ended. A launch
        without places ends as soon as it starts.
        """
        host = self.host_task()
        self._unfinished[work] = None
        work.kernel, work.args = kernel, args
        work.places = self.places if places is None else places
        for place in work.places:
            queue = self._queue_of[place]
            work.n_blockers += bool(queue)
            queue.append(work)
        for other in after:
            if not other.is_completed():
                work.n_blockers += 1
                other.followers.append(work)
        if not work.n_blockers:
            self._start(work, host.span)

    def _start(self, work: Work, cause: int) -> None:
        work.start_ps = self._sip.engine.now_ps
        if work.on_start is not None:
            work.on_start(work)
        self._mark(work)
        self._n_running += 1
        args = tuple(arg.pointer() if isinstance(arg, TensorBase) else arg for arg in work.args)
        span = self._sip.recorder.span("host", "launch", work.start_ps, work.start_ps, cause)

        def begin(place: tuple[int, int], span: int) -> None:
            self._begin_on(place, work, args, span)

        def done(span: int) -> None:
            work.span = span
            self._end(work)

        places = [(place.cube, place.pe) for place in work.places]
        work.launch = self._sip.launch(places, begin, done, span, work.run)

    def _mark(self, work: Work) -> None:
        """Reset the usage counters if the launch makes a result row; launches between result rows count for no row."""
        if work.is_reported:
            self._has_rows, self._row = True, work
            self._sip.usage.mark(1)
        elif self._has_rows and self._row is None:
            self._sip.usage.mark(0)

    def note_copy(self) -> None:
        """Note that a copy or map begins: outside of result rows, its traffic counts for no row."""
        if self._has_rows and self._row is None:
            self._sip.usage.mark(0)

    def _begin_on(self, place: tuple[int, int], work: Work, args: tuple[Any, ...], cause: int) -> None:
        pe, kernel, start_ps = self._sip.pe(*place), work.kernel, self._sip.engine.now_ps
        pe.run = work.run
        pe.ipcq.use(work.generation, work.call.text if work.call.is_schedule else "")
        tl = TL(pe, address_translator(pe, self.space, self._sip.checker is not None))
        assert kernel is not None

        def body() -> None:
            run_kernel(kernel, args, tl)
            assert pe.task is not None
            assert work.launch is not None
            last, now_ps = pe.task.span, self._sip.engine.now_ps
            name = f"cube{pe.cube}.pe{pe.pe}.kernel"
            self._sip.recorder.span(name, kernel.__name__, start_ps, now_ps, cause, last, work.run)
            pe.kernel_ps += now_ps - start_ps
            work.note_kernel(start_ps, now_ps)
            work.launch.ended(place, last)

        self._sip.spawn(pe, body, cause)

    def _end(self, work: Work) -> None:
        engine = self._sip.engine
        work.end_ps = engine.now_ps
        del self._unfinished[work]
        self._n_running -= 1
        self._record(work)
        if work.on_end is not None:
            work.on_end(work)
        if work is self._row:
            self._row = None
            if self._n_running:
                self._sip.usage.mark(0)
        if work.waiter is not None:
            work.waiter.span = work.span
            engine.at(engine.now_ps, work.waiter.resume)
        followers = work.followers
        work.drop()
        for place in work.places:
            self._advance(place, work.span)
        for follower in followers:
            self._unblock(follower, work.span)

    def _record(self, work: Work) -> None:
        """Record a launch; count the launch's kernels and the time that these kernels waited, by command."""
        assert work.end_ps is not None
        waited_ps: defaultdict[str, Ps] = defaultdict(int)
        for place in work.places:
            for name, ps in self._sip.recorder.take_waited(f"cube{place.cube}.pe{place.pe}").items():
                waited_ps[TL_WORDS.get(name, name)] += ps
        kernels, busy_ps = len(work.places), dict(waited_ps)
        if work.before_start_ps:
            waited_ps[BEFORE_START] = work.before_start_ps
        use = KernelUse(kernels, work.kernel_ps, kernels * (work.end_ps - work.start_ps), dict(waited_ps))
        self._sip.usage.note_launch(use, work.counts_for_row)
        self.ended += 1
        if len(self.records) == MOST_LAUNCHES:
            return
        pes = places_text((place.cube, place.pe) for place in work.places)
        target_ps, late_ps = (None, 0) if work.launch is None else (work.launch.target_ps, work.launch.late_ps)
        self.records.append(
            LaunchRecord(
                work.name,
                work.run,
                work.start_ps,
                work.end_ps,
                work.kernels_ps,
                target_ps,
                late_ps,
                pes,
                kernels,
                busy_ps,
            )
        )

    def _advance(self, place: PePlace, cause: int) -> None:
        queue = self._queue_of[place]
        queue.popleft()
        if queue:
            self._unblock(queue[0], cause)

    def _unblock(self, work: Work, cause: int) -> None:
        work.n_blockers -= 1
        if not work.n_blockers:
            self._start(work, cause)


PS_PER_MS = 10**9


class Event:
    """Point in the launches of a SIP, set by the last call of :meth:`record`.

    Names, defaults and kinds of errors are as in ``torch.Event``. A SIP has one stream, so the launches before an event
    are all launches and collectives that the SIP has made so far. The event's time is the end of the last such launch,
    or the time of :meth:`record` if all had ended: host code takes no time, except for copies and maps.
    """

    def __init__(self, stream: Stream, enable_timing: bool = False) -> None:
        self._stream = stream
        self.bridge = stream.bridge
        self.enable_timing = enable_timing
        self._is_recorded = False
        self._since_ps: Ps = 0
        self._before: list[Work] = []

    @host_call
    def record(self) -> None:
        """Set the event behind all launches and collectives that this SIP has made so far."""
        self._stream.host_task()
        self._since_ps, self._before = self._stream.now_ps, self._stream.unfinished()
        self._is_recorded = True

    def query(self) -> bool:
        """Return whether all launches before the event have ended; True before :meth:`record`, as in PyTorch."""
        return all(work.is_completed() for work in self._before)

    @host_call
    def synchronize(self) -> None:
        """Block the host script until all launches before the event have ended."""
        for work in self._before:
            work.wait()

    def wait(self) -> None:
        """Start all further launches after the event. The host itself waits: it makes no launch before."""
        self.synchronize()

    @property
    def time_ps(self) -> Ps:
        """Simulated time of the event, in ps.

        Raises:
            RuntimeError: before :meth:`record`, or while a launch before the event has not ended.
        """
        if not self._is_recorded:
            raise RuntimeError("the event must be recorded before it has a time; call record()")
        if not self.query():
            raise RuntimeError("the event must be completed before it has a time; call synchronize()")
        return max([self._since_ps, *(work.end_ps or 0 for work in self._before)])

    def elapsed_time(self, end_event: "Event") -> float:
        """Return the simulated milliseconds from this event to ``end_event``; ``time_ps`` is exact.

        Raises:
            RuntimeError: unless both events are made with ``enable_timing=True``, recorded and completed.
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
