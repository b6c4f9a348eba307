"""The forecast of the built-in job: the kernels of each size, run without a machine, each command counted and timed.

A kernel uses the ordinary ``tl``; its commands go to a :class:`CountingPe` with a clock of its own, and move no values.
A receive takes the next message of its direction, so what comes out does not depend on the order in which the PEs are
run. Times are sums of the terms of :mod:`sipsim.chips.ahbm.costs.prices`: those of commands that meet no other traffic,
except that messages of one queue pair follow each other. Commands are counted exactly, or not at all: a kernel that
asks for a value, or for what depends on time, is :class:`Uncountable`.
"""

import math
from array import array
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, NoReturn, cast

import greenlet
import numpy as np

from sipsim.chips.ahbm.address import PePlace, PhysAddr
from sipsim.chips.ahbm.costs.prices import Machine, Place, memory_of, on_any_sip, sum_ps
from sipsim.chips.ahbm.host.layout import DPPolicy
from sipsim.chips.ahbm.host.memory import AddressSpace
from sipsim.chips.ahbm.host.tensor import Tensor
from sipsim.chips.ahbm.ipcq.credits import FABRIC, FAST_PATH, PIGGYBACK
from sipsim.chips.ahbm.ipcq.messages import COPY, IN_PLACE, IpcqInitEntry
from sipsim.chips.ahbm.memory.store import MemoryStore
from sipsim.chips.ahbm.pe.commands import (
    Cast,
    Completion,
    Const,
    Delay,
    DmaRead,
    DmaWrite,
    IpcqRecv,
    IpcqSend,
    Join,
    Make,
    MathOp,
    Rearrange,
    Reduce,
    View,
    math_work,
)
from sipsim.chips.ahbm.pe.tcm import Array, Handle
from sipsim.chips.ahbm.plan import Plan
from sipsim.chips.ahbm.tl.context import KernelPe, KernelSip
from sipsim.chips.ahbm.tl.language import TL, run_kernel
from sipsim.chips.api.forecast import STEPS, JobForecast, SizeForecast
from sipsim.collectives.call import COLLECTIVES, Call, default_collective
from sipsim.core.dtypes import DTYPES
from sipsim.core.errors import Halt, IpcqInvalidDirection, error_text, pass_on_halt
from sipsim.core.task import Task
from sipsim.records.job import Job

Ps = int


class CommandTimes:
    """Times in ps. What is asked again is remembered: kernels repeat few commands very often."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._machine = Machine(plan.resolved, plan.ipcq)
        self.math_ps = cache(lambda work: sum_ps(self._machine.math(work)))
        self._read_ps = cache(lambda place, memory, nbytes: sum_ps(self._machine.read(place, memory, nbytes)))
        self._write_ps = cache(lambda place, memory, nbytes: sum_ps(self._machine.write(place, memory, nbytes)))
        self._latch_ps = cache(lambda place, memory, nbytes: sum_ps(self._machine.latch(place, memory, nbytes)))
        self.message_ps = cache(self._message_ps)
        self.issue_ps = sum_ps(self._machine.issue())
        self._has_launches = plan.resolved.components.launch is not None

    def read_ps(self, place: Place, address: int, nbytes: int) -> Ps:
        """A load: command, read latency, data."""
        return self._read_ps(on_any_sip(place), memory_of(address), nbytes)

    def write_ps(self, place: Place, address: int, nbytes: int) -> Ps:
        """A store: data, write latency, acknowledgement."""
        return self._write_ps(on_any_sip(place), memory_of(address), nbytes)

    def launch_ps(self, sip: int, places: list[tuple[int, int]]) -> Ps:
        """From the host's launch on these PEs of a SIP to the start of its kernels."""
        return sum_ps(self._machine.launch(sip, places)) if self._has_launches else 0

    def gather_ps(self, place: tuple[int, int]) -> Ps:
        """From the end of the last kernel, there, to the host."""
        return sum_ps(self._machine.gathering(place)) if self._has_launches else 0

    def latch_ps(self, place: Place, address: int, nbytes: int) -> Ps:
        """A copy of a message from its slot to the kernel's region of the TCM."""
        return self._latch_ps(on_any_sip(place), memory_of(address), nbytes)

    def _message_ps(self, src: PePlace, entry: IpcqInitEntry, nbytes: int) -> tuple[Ps, Ps]:
        """From ``tl.send`` until a message of ``nbytes`` is in its slot; and the time for which it holds its route."""
        terms = self._machine.message((src.sip, src.cube, src.pe), entry.direction, entry.peer, nbytes, None)
        return sum_ps(terms), sum(term.ps for term in terms if term.is_drain)

    def credit_ps(self, place: PePlace, entry: IpcqInitEntry) -> tuple[Ps, Ps]:
        """For how long ``tl.recv`` is blocked by the credit, and how long the credit takes to the sender."""
        here, mode = (place.sip, place.cube, place.pe), entry.credit_mode
        if self._plan.ipcq.latch == IN_PLACE:
            mode = PIGGYBACK
        whole_ps = self._plan.ipcq_overhead_ps + entry.credit_ps
        if mode == FAST_PATH:
            return whole_ps, whole_ps
        if mode == FABRIC:
            return sum_ps(self._machine.injection(here, entry.direction, entry.peer.place)), whole_ps
        return 0, whole_ps


class Uncountable(Halt):
    """The commands of a kernel cannot be known before it runs; the text gives the reason.

    No ``Exception``, which a kernel could catch: it would go on, and be counted wrong.
    """


def refuse(*_arguments: object) -> NoReturn:
    """A kernel asks for what is not known before it runs."""
    raise Uncountable("a kernel looks at values, or at what depends on time")


class NoValues:
    """In place of the values of a handle: only their size is known. ``fetch_ps``: to bring them to the PE."""

    def __init__(self, shape: tuple[int, ...], nbytes: int, fetch_ps: Ps = 0) -> None:
        self.shape = shape
        self.nbytes = nbytes
        self.fetch_ps = fetch_ps

    __getattr__ = __getitem__ = __array__ = __len__ = __iter__ = __bool__ = __float__ = __int__ = refuse
    __index__ = __eq__ = __ne__ = __lt__ = __gt__ = __le__ = __ge__ = __add__ = __radd__ = __mul__ = refuse
    __hash__ = None  # type: ignore[assignment]


class Queue:
    """One direction of one PE. ``arrivals_ps``: of messages to it, not received yet; ``credits_ps``: of its own sends.

    ``receiver``: the queue that its messages come to; ``sender``: the one whose messages come here. ``waiter``: its PE,
    while it waits for a message or a credit.
    """

    def __init__(self, entry: IpcqInitEntry, place: PePlace, times: CommandTimes) -> None:
        self.entry = entry
        self.can_send = entry.can_send
        self.peer = entry.peer
        self.credit_ps = times.credit_ps(place, entry)
        self.receiver: Queue | None = None
        self.sender: Queue | None = None
        self.is_remote = entry.peer.sip != place.sip
        self.arrivals_ps: deque[Ps] = deque()
        self.pending: deque[CountedReceive] = deque()
        self.credits_ps: deque[Ps] = deque()
        self.free_slots = entry.peer.n_slots
        self.last_ps: Ps = 0
        self.sent_ps: Ps = 0
        self.waiter: CountingPe | None = None


class CountedReceive:
    """The completion of a receive: its end is known once its message is."""

    error = None

    def __init__(self, pe: "CountingPe", queue: Queue, latch_ps: Ps) -> None:
        self._pe = pe
        self.latch_ps = latch_ps
        self._queue = queue
        self.start_ps = pe.now_ps
        self.end_ps: Ps | None = None

    ended = has_ended = value = property(refuse)

    def wait(self, _task: object) -> None:
        """Run the other PEs until the message has arrived."""
        while self.end_ps is None:
            self._queue.waiter = self._pe
            self._pe.give_way()
        self._pe.advance(max(self._pe.now_ps, self.end_ps))


class CountedTransfer:
    """The completion of a load or a store."""

    ended = False
    error = None

    def __init__(self, pe: "CountingPe", end_ps: Ps) -> None:
        self._pe = pe
        self._end_ps = end_ps
        pe.ended(end_ps)

    has_ended = value = property(refuse)

    def wait(self, _task: object) -> None:
        """Let its time pass."""
        self._pe.now_ps = max(self._pe.now_ps, self._end_ps)


REMOTE = "remote send"
"""A send to another SIP, in the counts."""


class _Running:
    """The task of a kernel, which runs whenever it is asked."""

    is_current = True


_ENDED = Completion(None, 0, ended=True)


class CountingPe:
    """A PE, its clock and its queues: what a kernel's ``tl`` sees of it, a ``KernelPe`` and its ``KernelQueues``."""

    task = cast(Task, _Running())

    def __init__(self, run: "CountedLaunch", place: PePlace, rank: int | None, loop: greenlet.greenlet) -> None:
        self.place = place.sip, place.cube, place.pe
        self.cube, self.pe, self.rank = place.cube, place.pe, rank
        self.ipcq = self
        self.world_size = run.plan.world_size
        self.phase = ""
        self.mmu = None
        self.now_ps: Ps = 0
        self._run = run
        self._loop = loop
        self._handles = 0
        times = run.times
        self.queues = {e.direction: Queue(e, place, times) for e in run.plan.entries_of(place)}
        self._takes: dict[type, Callable[[Any], Any]] = {
            DmaRead: self._read,
            DmaWrite: self._write,
            **dict.fromkeys((MathOp, Reduce, Cast, Rearrange, Make), self._math),
            View: self._view,
            Join: self._join,
            Delay: self._delay,
            Const: self._const,
            IpcqSend: self._send,
            IpcqRecv: self._receive,
        }
        self._message_ps = {d: {} for d in self.queues}  # type: dict[str, dict[int, tuple[Ps, Ps]]]
        self._full_place = place

    @property
    def last_polled_dir(self) -> NoReturn:
        """Depends on time."""
        refuse()

    def queue(self, direction: str) -> Queue:
        """The queue pair of a direction that is installed for sending.

        Raises:
            IpcqInvalidDirection: when there is none.
        """
        queue = self.queues.get(direction)
        if queue is None or not queue.can_send:
            raise IpcqInvalidDirection(f"direction {direction!r} is not installed")
        return queue

    def enter_phase(self, phase: str) -> None:
        """Its kernel is in a phase from now on; nothing is counted by phase."""
        self.phase = phase

    def number_handle(self) -> int:
        """The number of the next handle."""
        self._handles += 1
        return self._handles

    def submit(self, command: Any) -> Completion:
        """Count a command, and let its time pass."""
        take = self._takes.get(type(command))
        if take is None:
            raise Uncountable(f"the time of {type(command).__name__} is not known")
        self.now_ps += self._run.times.issue_ps
        return cast(Completion, take(command))

    def advance(self, now_ps: Ps) -> None:
        """The kernel's command has ended at ``now_ps``, and it goes on."""
        self.now_ps = now_ps
        self.ended(now_ps)

    def ended(self, end_ps: Ps) -> None:
        """A command ends at ``end_ps``."""
        self._run.ends_ps.append(end_ps)

    def settle(self) -> None:
        """Its clock is that of PE_CPU."""

    def give_way(self) -> None:
        """Let other PEs run until this one is woken."""
        self._loop.switch()

    def _read(self, command: DmaRead) -> CountedTransfer:
        block = command.block
        command.result.array = cast(Array, NoValues(command.dims, block.nbytes))
        self._run.counts["load"] += 1
        return CountedTransfer(self, self.now_ps + self._run.times.read_ps(self.place, block.address, block.nbytes))

    def _write(self, command: DmaWrite) -> CountedTransfer:
        self._run.counts["store"] += 1
        self._fetch(command.operand)
        write_ps = self._run.times.write_ps(self.place, command.block.address, command.operand.nbytes)
        return CountedTransfer(self, self.now_ps + write_ps)

    def _math(self, command: MathOp | Reduce | Cast | Rearrange | Make) -> Completion:
        self._run.counts[command.op] += 1
        for operand in command.handles:
            self._fetch(operand)
        work = math_work(command)
        command.result.array = cast(Array, NoValues(command.shape, command.result_bytes))
        self.advance(self.now_ps + self._run.times.math_ps(work))
        return _ENDED

    def _view(self, command: View) -> Completion:
        self._fetch(command.operand)
        nbytes = math.prod(command.dims) * command.result.dtype.itemsize
        return self._takes_no_time(command.result, NoValues(command.dims, nbytes))

    def _join(self, command: Join) -> Completion:
        nbytes = sum(each.nbytes for each in command.operands)
        return self._takes_no_time(command.result, NoValues((nbytes // command.result.dtype.itemsize,), nbytes))

    def _takes_no_time(self, result: Handle, values: NoValues) -> Completion:
        result.array = cast(Array, values)
        self.now_ps -= self._run.times.issue_ps
        return _ENDED

    def _delay(self, command: Delay) -> Completion:
        self._run.counts["delay"] += 1
        self.advance(self.now_ps + command.ps - self._run.times.issue_ps)
        return _ENDED

    def _fetch(self, operand: Handle) -> None:
        """Values that are still in a slot in HBM or SRAM come to the PE first."""
        values: Any = operand.array
        if isinstance(values, NoValues):
            self.now_ps += values.fetch_ps
            values.fetch_ps = 0

    def _const(self, command: Const) -> Completion:
        command.result.array = np.array(command.values)
        self._run.counts["const"] += 1
        self.advance(self.now_ps)
        return _ENDED

    def _send(self, command: IpcqSend) -> Completion:
        queue = self.queue(command.direction)
        if command.nbytes > queue.peer.slot_size:
            raise Uncountable("a message is larger than a slot")
        while not queue.free_slots and not queue.credits_ps:
            queue.waiter = self
            self.give_way()
        if queue.free_slots:
            queue.free_slots -= 1
        else:
            self.now_ps = max(self.now_ps, self._run.seen_ps(self.now_ps, queue.credits_ps.popleft()))
        known = self._message_ps[command.direction]
        if command.nbytes not in known:
            known[command.nbytes] = self._run.times.message_ps(self._full_place, queue.entry, command.nbytes)
        latency_ps, drain_ps = known[command.nbytes]
        queue.sent_ps = max(self.now_ps, queue.sent_ps)
        values: Any = None if isinstance(command.source, int) else command.source.array
        arrival_ps = queue.sent_ps + latency_ps + (values.fetch_ps if isinstance(values, NoValues) else 0)
        queue.sent_ps += drain_ps
        self._run.counts[REMOTE if queue.is_remote else "send"] += 1
        self.advance(self.now_ps)
        assert queue.receiver is not None
        queue.receiver.arrivals_ps.append(arrival_ps)
        self._run.serve(queue.receiver)
        return _ENDED

    def _receive(self, command: IpcqRecv) -> CountedReceive:
        if not isinstance(command.direction, str):
            raise Uncountable("a receive without a direction depends on time")
        queue = self.queues.get(command.direction)
        if queue is None:
            raise IpcqInvalidDirection(f"direction {command.direction!r} is not installed")
        nbytes = math.prod(command.dims) * command.dtype.itemsize
        fetch_ps = 0 if command.copy_to is not None else self._slot_ps(nbytes)
        command.result.array = cast(Array, NoValues(command.dims, nbytes, fetch_ps))
        self._run.counts["recv"] += 1
        receive = CountedReceive(self, queue, self._latch_ps(nbytes) if command.copy_to is None else 0)
        queue.pending.append(receive)
        self._run.serve(queue)
        return receive

    def _slot_ps(self, nbytes: int) -> Ps:
        """The time to fetch a message from its slot; none from the PE's own TCM, or after it was copied."""
        knobs = self._run.plan.ipcq
        if knobs.buffer_kind == "tcm" or knobs.latch == COPY:
            return 0
        return self._run.times.read_ps(self.place, self._own(knobs.buffer_kind), nbytes)

    def _latch_ps(self, nbytes: int) -> Ps:
        """The time until the slot of a message is free. One that is used in place is taken as free at once."""
        knobs, times = self._run.plan.ipcq, self._run.times
        if knobs.latch != COPY:
            return 0
        return times.latch_ps(self.place, self._own(knobs.buffer_kind), nbytes)

    def _own(self, space: str) -> int:
        """The first byte of one of its memories."""
        return PhysAddr(0, self.cube, self.pe, space, 0).encode()


class CountedLaunch:
    """One launch on all SIPs. Afterwards: ``counts`` of commands, ``ends_ps`` of each, from the common start on, and
    ``done_ps``, when the last host knows of the last end. ``start_ps``: when the first kernels start.
    """

    def __init__(self, plan: Plan, times: CommandTimes) -> None:
        self.plan = plan
        self.times = times
        self.counts: Counter[str] = Counter()
        self.ends_ps = array("q")
        loop = greenlet.getcurrent()
        self.done_ps: Ps = 0
        self.pes = {place: CountingPe(self, place, rank, loop) for rank, place in enumerate(plan.pe_of_rank)}
        self._start_clocks()
        self._join_queues()
        self._runnable: deque[CountingPe] = deque(self.pes.values())
        self._greenlets: dict[CountingPe, greenlet.greenlet] = {}

    def run(
        self,
        kernels: Sequence[Callable[..., None]],
        args: Sequence[tuple[Any, ...]],
        translate: Sequence[Callable[[int, int], int]],
    ) -> None:
        """Run ``kernels[sip](*args[sip], tl)`` on every PE of each SIP, with addresses by ``translate[sip]``.

        Raises:
            Uncountable: when the commands cannot be known, or not all kernels end.
        """
        stores = [KernelsSip(self.plan, sip) for sip in range(self.plan.system.n_sips)]
        for place, pe in self.pes.items():
            sip = place.sip
            tl = TL(cast(KernelSip, stores[sip]), cast(KernelPe, pe), translate[sip])
            self._greenlets[pe] = greenlet.greenlet(_body(kernels[sip], args[sip], tl))
        try:
            while self._runnable:
                self._greenlets[self._runnable.popleft()].switch()
            if not all(each.dead for each in self._greenlets.values()):
                raise Uncountable("the kernels wait for each other")
            self.done_ps = max(pe.now_ps + self.times.gather_ps((pe.cube, pe.pe)) for pe in self.pes.values())
        except BaseException as error:
            pass_on_halt(error)
            raise Uncountable(f"a kernel raised {error_text(error)}") from error
        finally:
            for each in self._greenlets.values():
                if not each.dead:
                    each.throw()

    def serve(self, queue: Queue) -> None:
        """Match messages with receives, and wake who waits for either."""
        blocked_ps, return_ps = queue.credit_ps
        sender = queue.sender
        while queue.pending and queue.arrivals_ps:
            receive, arrival_ps = queue.pending.popleft(), queue.arrivals_ps.popleft()
            seen_ps = self.seen_ps(receive.start_ps, arrival_ps)
            taken_ps = max(receive.start_ps, seen_ps, queue.last_ps)
            freed_ps = taken_ps + receive.latch_ps
            receive.end_ps = queue.last_ps = freed_ps + blocked_ps
            self._wake(queue)
            if sender is not None:
                sender.credits_ps.append(freed_ps + return_ps)
                self._wake(sender)

    def seen_ps(self, since_ps: Ps, event_ps: Ps) -> Ps:
        """When a kernel that waits since then sees an event: wake-ups and polls that cost time are counted."""
        backpressure = self.plan.backpressure
        return event_ps if backpressure.is_free else backpressure.seen_ps(since_ps, event_ps)

    def _wake(self, queue: Queue) -> None:
        if queue.waiter is not None:
            self._runnable.append(queue.waiter)
            queue.waiter = None

    def _start_clocks(self) -> None:
        """The kernels of a SIP start when its launch has come to them."""
        of_sip: defaultdict[int, list[CountingPe]] = defaultdict(list)
        for pe in self.pes.values():
            of_sip[pe.place[0]].append(pe)
        for sip, pes in of_sip.items():
            start_ps = self.times.launch_ps(sip, [(pe.cube, pe.pe) for pe in pes])
            for pe in pes:
                pe.now_ps = start_ps
        self.start_ps = min((pe.now_ps for pe in self.pes.values()), default=0)

    def _join_queues(self) -> None:
        queues = [queue for pe in self.pes.values() for queue in pe.queues.values()]
        by_ring = {queue.entry.my_rx_base_pa: queue for queue in queues}
        for queue in queues:
            if queue.can_send:
                queue.receiver = by_ring[queue.peer.rx_base_pa]
                queue.receiver.sender = queue


class KernelsSip:
    """What a kernel's ``tl`` sees of its SIP."""

    def __init__(self, plan: Plan, sip: int) -> None:
        self.plan = plan
        self.sip = sip
        self.memory = MemoryStore(sip, plan.system.capacities, plan.system.spaces_of_cubes)


def _body(kernel: Callable[..., None], args: tuple[Any, ...], tl: TL) -> Callable[[], None]:
    def body() -> None:
        run_kernel(kernel, args, tl)

    return body


def forecast(job: Job, plan: Plan) -> JobForecast:
    """What a built-in job takes.

    Raises:
        Uncountable: when the algorithm's kernels cannot be counted.
    """
    if job.algorithms:
        raise Uncountable("programs of collectives over a group")
    times = CommandTimes(plan)
    known: dict[int, SizeForecast] = {}
    for n_elem in job.n_elems:
        if n_elem not in known:
            known[n_elem] = _size(n_elem, job, plan, times)
    sizes = tuple(known[n_elem] for n_elem in job.n_elems)
    gap_ps = plan.barrier_tree.gap_ps if plan.system.n_sips > 1 else 0
    return JobForecast(sizes=sizes, iterations=job.warmup + job.iters, gap_ps=gap_ps)


def _size(n_elem: int, job: Job, plan: Plan, times: CommandTimes) -> SizeForecast:
    launch, system = CountedLaunch(plan, times), plan.system
    kernels: list[Callable[..., None]] = []
    args: list[tuple[Any, ...]] = []
    spaces: list[AddressSpace] = []
    nbytes = elements = 0
    for sip in range(system.n_sips):
        world = plan.world.on_sip(sip)
        space = AddressSpace(MemoryStore(sip, system.capacities, system.spaces_of_cubes), sip, plan.hbm_room_bytes)
        call = _call(n_elem, job, plan, space)
        tensors = call.tensors()
        nbytes, elements = sum(tensor.nbytes for tensor in tensors), tensors[0].numel()
        kernels.append(world.algorithm.kernel)
        pointers = [tensor.pointer() for tensor in tensors if isinstance(tensor, Tensor)]
        args.append((*pointers, *call.values, *world.kernel_args(system, sip, call.n_elem())))
        spaces.append(space)
    launch.run(kernels, args, [space.translate for space in spaces])
    ends_ps = np.sort(np.array(launch.ends_ps))
    if not len(ends_ps):
        raise Uncountable("the kernels have no commands")
    first_ps = int(ends_ps[0]) - launch.start_ps
    duration_ps = max(int(ends_ps[-1]), launch.done_ps)
    at = (np.arange(STEPS + 1) * (len(ends_ps) - 1)) // STEPS
    return SizeForecast(
        n_elem=n_elem,
        nbytes=nbytes,
        elements=elements,
        counts=dict(launch.counts),
        commands=len(ends_ps),
        duration_ps=duration_ps,
        # What is left before the first command ends includes the launch.
        curve_ps=(first_ps, *(int(time_ps) for time_ps in ends_ps[at[1:-1]]), duration_ps),
    )


def _call(n_elem: int, job: Job, plan: Plan, space: AddressSpace) -> Call:
    collective = COLLECTIVES.get(job.collective or default_collective())
    dtype, cubes = DTYPES[job.dtype], plan.system.n_cubes
    of_source, of_result = collective.elements(n_elem, plan.system.n_sips)

    def zeros(elements: int) -> Tensor:
        return Tensor(MemoryStore(0, {}), space, (cubes, elements), dtype, DPPolicy(num_cubes=cubes))

    source = zeros(of_source)
    return Call(source, source if collective.in_place else zeros(of_result), job.op, collective.default_values)
