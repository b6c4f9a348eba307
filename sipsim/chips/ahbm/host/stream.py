"""The launches of one SIP, and the works, futures and events by which a host program waits for them."""

import weakref
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Sequence
from itertools import takewhile
from typing import Any, NamedTuple

from sipsim.chips.ahbm.address import PePlace
from sipsim.chips.ahbm.control import Launch
from sipsim.chips.ahbm.host.layout import TensorBase
from sipsim.chips.ahbm.host.memory import AddressSpace, translation_on
from sipsim.chips.ahbm.host.tensor import TensorList
from sipsim.chips.ahbm.sip import Sip
from sipsim.chips.ahbm.tl.language import TL, run_kernel
from sipsim.chips.api.bridge import host_call
from sipsim.collectives.call import Call, CallKey, OpenCall
from sipsim.core.task import Task
from sipsim.records.report import MOST_LAUNCHES, TL_WORDS, KernelUse, LaunchRecord, places_text


class Outputs:
    """The tensors that a launch writes, without keeping them: a script that drops one gets its memory back."""

    def __init__(self, result: Any) -> None:
        tensors = result.tensors if isinstance(result, TensorList) else [] if result is None else [result]
        self._kept = [weakref.ref(tensor) for tensor in tensors]

    def tensors(self) -> list[Any]:
        """All of them.

        Raises:
            RuntimeError: when one is gone.
        """
        found = [kept() for kept in self._kept]
        if any(each is None for each in found):
            raise RuntimeError("a tensor of this collective is gone; keep it, or take the future before")
        return found


class Future:
    """The value of an asynchronous collective, or of a function of another future's, once the launch has ended."""

    def __init__(self, work: "Work", compute: Callable[[], Any]) -> None:
        self._work = work
        self._compute = compute
        self._known: list[Any] = []

    def done(self) -> bool:
        """Whether :meth:`value` has one."""
        return self._work.is_completed()

    def wait(self) -> Any:
        """Block the host script until the launch has ended; the value."""
        self._work.wait()
        return self.value()

    def value(self) -> Any:
        """The tensors of a collective as a list, or what a function of :meth:`then` has returned.

        Raises:
            RuntimeError: before the launch has ended.
        """
        if not self.done():
            raise RuntimeError("the future has no value yet; wait() for it")
        if not self._known:
            self._known.append(self._compute())
        return self._known[0]

    def then(self, callback: Callable[["Future"], Any]) -> "Future":
        """A future with the value of ``callback(this future)``. The callback is host code: it runs once, when the
        script first asks for that value with :meth:`wait` or :meth:`value`.
        """
        return Future(self._work, lambda: callback(self))


def future_of(work: "Work", outputs: Outputs) -> Future:
    """The future of a launch's tensors, which it keeps."""
    tensors = outputs.tensors()
    return Future(work, lambda: tensors)


Ps = int
NO_CALL = Call()
BEFORE_START = "launch"
"""The name, among those of commands, for the time that kernels wait before they start."""


class WorkTimes(NamedTuple):
    """The start and end of a launch that has ended, and those of its kernels, as in :class:`Work`."""

    span_ps: tuple[Ps, Ps]
    kernels_ps: tuple[Ps, Ps] | None


class Work:
    """A launch that the host has made; ``what`` describes it in deadlock reports, ``name`` in results.

    ``call``: the collective or message that it carries out; the call's tensors are dropped when the launch ends.
    ``has_own_row``: the launch is a row of the result by itself; ``is_of_row``: it counts for a row. ``run``: the
    number of its collective on this SIP. ``span``: the number of the span that released its end. ``ahead``: on how
    many of its PEs an earlier launch has not ended, plus the number of other launches whose end it waits for.
    ``followers``: the launches that count this one among those others.
    ``kernels_ps``: from the start of its first kernel to the end of its last one, once one has ended.
    ``before_start_ps``: the time from the launch to a kernel's start, summed over its kernels. ``generation``: the
    queue pairs that its kernels use. ``outputs``: the tensors that it writes. ``row``: as in a ``RunRecord``.
    ``on_start``, ``on_end``: functions that are called with this launch when it starts and when it ends.
    """

    def __init__(
        self,
        launcher: "KernelQueue",
        name: str,
        what: str = "a collective",
        call: Call = NO_CALL,
        is_of_row: bool = False,
        has_own_row: bool = False,
    ) -> None:
        self._queue = launcher
        self.bridge = launcher.bridge
        self.name = name
        self._what = what
        self.call = call
        self.is_of_row = is_of_row
        self.has_own_row = has_own_row
        self.kernel: Callable[..., None] | None = None
        self.args: tuple[Any, ...] = ()
        self.places: Sequence[PePlace] = ()
        self.ahead = 0
        self.followers: list[Work] = []
        self.kernels_ps: tuple[Ps, Ps] | None = None
        self.kernel_ps: Ps = 0
        self.before_start_ps: Ps = 0
        self.launch: Launch | None = None
        self.span = 0
        self.start_ps: Ps = 0
        self.end_ps: Ps | None = None
        self.generation = 0
        self.outputs = Outputs(None)
        self.run: int | None = None
        self.row: str | None = None
        self.on_start: Callable[[Work], None] | None = None
        self.on_end: Callable[[Work], None] | None = None
        self.waiter: Task | None = None

    def is_completed(self) -> bool:
        """Whether all its kernels have ended."""
        return self.end_ps is not None

    @property
    def times(self) -> WorkTimes:
        """The times of a launch that has ended."""
        return WorkTimes((self.start_ps, self.end_ps or 0), self.kernels_ps)

    def get_future(self) -> Future:
        """The future of the tensors that it writes.

        Raises:
            RuntimeError: when one of them is gone.
        """
        return future_of(self, self.outputs)

    def result(self) -> list[Any]:
        """The tensors that it writes, once it has ended.

        Raises:
            RuntimeError: before, or when one of them is gone.
        """
        return list(self.get_future().value())

    @host_call
    def wait(self) -> bool:
        """Block the host script until all its kernels have ended; always True, as in PyTorch."""
        if not self.is_completed():
            host = self._queue.host_task()
            self.waiter = host
            host.wait(self._what)
        return True

    def note_kernel(self, start_ps: Ps, end_ps: Ps) -> None:
        """A kernel has ended."""
        first_ps, last_ps = self.kernels_ps or (start_ps, end_ps)
        self.kernels_ps = min(first_ps, start_ps), max(last_ps, end_ps)
        self.kernel_ps += end_ps - self.start_ps
        self.before_start_ps += start_ps - self.start_ps

    def drop(self) -> None:
        """Drop the references of a launch that has ended: a script that keeps the launch must not keep its tensors."""
        self.on_start = self.on_end = self.waiter = self.kernel = self.launch = None
        self.args = ()
        self.followers = []
        self.call = self.call._replace(source=None, result=None)


class KernelQueue:
    """The launches of one SIP, in the order in which the host made them on each PE.

    A launch waits for the earlier ones that share a PE with it, and runs beside all others. ``space``: where tensors
    lie. ``places``: the PEs that a launch runs on unless it names others. ``ended``: how many launches have ended;
    ``records``: of the first of these.
    """

    def __init__(self, sip: Sip, space: AddressSpace, places: list[PePlace]) -> None:
        self._sip = sip
        self.space = space
        self.bridge = space.bridge
        self.places = places
        self.records: list[LaunchRecord] = []
        self.ended = 0
        self.host: Task | None = None
        self._of_pe: defaultdict[PePlace, deque[Work]] = defaultdict(deque)
        self._unfinished: dict[Work, None] = {}
        self._under_way = 0
        self._has_rows = False
        self._row: Work | None = None

    def host_task(self) -> Task:
        """The task of the host script, the only one that may launch and wait.

        Raises:
            RuntimeError: when a kernel calls this.
        """
        assert self.host is not None
        if not self.host.is_current:
            raise RuntimeError("a kernel cannot launch or wait for kernels; do it in worker()")
        return self.host

    @property
    def now_ps(self) -> Ps:
        """The simulated time of the host script."""
        return self._sip.engine.now_ps

    def unfinished(self) -> list[Work]:
        """All launches that were made and have not ended, in order."""
        return list(self._unfinished)

    def open_calls(self) -> list[OpenCall]:
        """The collectives that have not ended, in order."""
        return [
            OpenCall(call.group, call.sips, call.number, call.text, self._behind(work))
            for work in self._unfinished
            if (call := work.call).number
        ]

    def _behind(self, work: Work) -> tuple[CallKey, ...]:
        """The last call before ``work`` on each of its PEs, and the other calls whose end it waits for."""
        found = {each: None for each in self._unfinished if work in each.followers and each.call.number}
        for place in work.places:
            line = takewhile(lambda each: each is not work, self._of_pe[place])
            found |= dict.fromkeys(deque((each for each in line if each.call.number), maxlen=1))
        return tuple((each.call.group, each.call.number) for each in found)

    def launch(
        self,
        work: Work,
        kernel: Callable[..., None],
        args: tuple[Any, ...],
        places: Sequence[PePlace] | None = None,
        after: Iterable[Work] = (),
    ) -> None:
        """Run ``kernel(*args, tl)`` on ``places``, once the earlier launches on these PEs and in ``after`` have ended.

        Tensors among ``args`` are passed as typed addresses, and stay allocated until the launch has ended. A launch
        without places ends as soon as it starts.
        """
        host = self.host_task()
        self._unfinished[work] = None
        work.kernel, work.args = kernel, args
        work.places = self.places if places is None else places
        for place in work.places:
            line = self._of_pe[place]
            work.ahead += bool(line)
            line.append(work)
        for other in after:
            if not other.is_completed():
                work.ahead += 1
                other.followers.append(work)
        if not work.ahead:
            self._start(work, host.span)

    def _start(self, work: Work, cause: int) -> None:
        work.start_ps = self._sip.engine.now_ps
        if work.on_start is not None:
            work.on_start(work)
        self._mark(work)
        self._under_way += 1
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
        """Begin the counters of a launch that is a row by itself; launches between such rows count for none."""
        if work.has_own_row:
            self._has_rows, self._row = True, work
            self._sip.usage.mark(1)
        elif self._has_rows and self._row is None:
            self._sip.usage.mark(0)

    def _begin_on(self, place: tuple[int, int], work: Work, args: tuple[Any, ...], cause: int) -> None:
        pe, kernel, begun_ps = self._sip.pe(*place), work.kernel, self._sip.engine.now_ps
        pe.run = work.run
        pe.ipcq.use(work.generation, work.call.text if work.call.is_schedule else "")
        tl = TL(pe, translation_on(pe, self.space, self._sip.checker is not None))
        assert kernel is not None

        def body() -> None:
            run_kernel(kernel, args, tl)
            assert pe.task is not None
            assert work.launch is not None
            last, now_ps = pe.task.span, self._sip.engine.now_ps
            name = f"cube{pe.cube}.pe{pe.pe}.kernel"
            self._sip.recorder.span(name, kernel.__name__, begun_ps, now_ps, cause, last, work.run)
            pe.kernel_ps += now_ps - begun_ps
            work.note_kernel(begun_ps, now_ps)
            work.launch.ended(place, last)

        self._sip.spawn(pe, body, cause)

    def _end(self, work: Work) -> None:
        engine = self._sip.engine
        work.end_ps = engine.now_ps
        del self._unfinished[work]
        self._under_way -= 1
        self._record(work)
        if work.on_end is not None:
            work.on_end(work)
        if work is self._row:
            self._row = None
            if self._under_way:
                self._sip.usage.mark(0)
        if work.waiter is not None:
            work.waiter.span = work.span
            engine.at(engine.now_ps, work.waiter.resume)
        followers = work.followers
        work.drop()
        for place in work.places:
            self._let_next_on(place, work.span)
        for follower in followers:
            self._one_less_ahead(follower, work.span)

    def _record(self, work: Work) -> None:
        """Count its kernels, and what they waited for."""
        assert work.end_ps is not None
        waited_ps: defaultdict[str, Ps] = defaultdict(int)
        for place in work.places:
            for name, ps in self._sip.recorder.take_waited(f"cube{place.cube}.pe{place.pe}").items():
                waited_ps[TL_WORDS.get(name, name)] += ps
        kernels, busy_ps = len(work.places), dict(waited_ps)
        if work.before_start_ps:
            waited_ps[BEFORE_START] = work.before_start_ps
        use = KernelUse(kernels, work.kernel_ps, kernels * (work.end_ps - work.start_ps), dict(waited_ps))
        self._sip.usage.note_launch(use, work.is_of_row)
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

    def _let_next_on(self, place: PePlace, cause: int) -> None:
        line = self._of_pe[place]
        line.popleft()
        if line:
            self._one_less_ahead(line[0], cause)

    def _one_less_ahead(self, work: Work, cause: int) -> None:
        work.ahead -= 1
        if not work.ahead:
            self._start(work, cause)


PS_PER_MS = 10**9


class Event:
    """A point in the launches of ``queue``, once :meth:`record` has been called; the last call counts.

    Names, defaults and kinds of errors are those of ``torch.Event``. There are no streams: an event stands behind all
    launches and collectives of its SIP that were made before it. Its time is that at which the last launch before it
    has ended, as the host knows it, or that of the call if all had ended: host code takes no time.
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
