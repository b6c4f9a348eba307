"""Runs the kernels of one launch without a machine: each command is counted and timed, and moves no values.

A kernel uses the ordinary ``tl``; its commands go to a :class:`CountingPe` with a clock of its own. A receive takes the
next message of its direction, so what comes out does not depend on the order in which the PEs are run. Times are those
of commands that meet no other traffic, except that messages of one queue pair follow each other. Commands are counted
exactly, or not at all: a kernel that asks for a value, or for what depends on time, is :class:`Uncountable`.
"""

import math
from array import array
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Sequence
from typing import Any, NoReturn, cast

import greenlet
import numpy as np

from sipsim.chips.ahbm.address import PePlace, PhysAddr
from sipsim.chips.ahbm.costs.forecast.counted import (
    CountedReceive,
    CountedTransfer,
    NoValues,
    Queue,
    Uncountable,
    refuse,
)
from sipsim.chips.ahbm.costs.forecast.times import CommandTimes
from sipsim.chips.ahbm.ipcq.messages.latch import COPY
from sipsim.chips.ahbm.memory.store.store import MemoryStore
from sipsim.chips.ahbm.pe.commands import (
    Cast,
    Completion,
    Const,
    Delay,
    DmaRead,
    DmaReadBlock,
    DmaWrite,
    DmaWriteBlock,
    IpcqRecv,
    IpcqSend,
    Join,
    Make,
    MathOp,
    Rearrange,
    Reduce,
    View,
)
from sipsim.chips.ahbm.pe.tcm.handles import Array, Handle
from sipsim.chips.ahbm.plan import Plan
from sipsim.chips.ahbm.tl.context import KernelPe, KernelSip
from sipsim.chips.ahbm.tl.language.language import TL, run_kernel
from sipsim.core.errors import IpcqInvalidDirection, error_text, pass_on_halt
from sipsim.core.task import Task

Ps = int
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
            DmaReadBlock: self._read_block,
            DmaWriteBlock: self._write_block,
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
        address, nbytes, dims, _, result = command
        return self._load(address, nbytes, dims, result)

    def _read_block(self, command: DmaReadBlock) -> CountedTransfer:
        return self._load(command.address, command.result_bytes, command.dims, command.result)

    def _load(self, address: int, nbytes: int, dims: tuple[int, ...], result: Handle) -> CountedTransfer:
        result.array = cast(Array, NoValues(dims, nbytes))
        self._run.counts["load"] += 1
        return CountedTransfer(self, self.now_ps + self._run.times.read_ps(self.place, address, nbytes))

    def _write(self, command: DmaWrite) -> CountedTransfer:
        return self._store(command.address, command.operand)

    def _write_block(self, command: DmaWriteBlock) -> CountedTransfer:
        return self._store(command.address, command.operand)

    def _store(self, address: int, operand: Handle) -> CountedTransfer:
        self._run.counts["store"] += 1
        self._fetch(operand)
        write_ps = self._run.times.write_ps(self.place, address, operand.nbytes)
        return CountedTransfer(self, self.now_ps + write_ps)

    def _math(self, command: MathOp | Reduce | Cast | Rearrange | Make) -> Completion:
        self._run.counts[command.op] += 1
        for operand in command.handles:
            self._fetch(operand)
        work = command.work
        command.result.array = cast(Array, NoValues(command.shape, command.result_bytes))
        self.advance(self.now_ps + self._run.times.math_ps(*work))
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
