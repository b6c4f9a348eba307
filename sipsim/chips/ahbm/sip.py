"""Hardware of one SIP: engine, fabric, memory, network interface and PEs."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from itertools import count
from typing import Any

import greenlet

from broker.wire import PacketBatch
from sipsim.chips.ahbm.address import PePlace
from sipsim.chips.ahbm.barrier import Barrier, BarrierPacket
from sipsim.chips.ahbm.collectives.queue_pairs import InstallPlan
from sipsim.chips.ahbm.control.copies import HostCopies
from sipsim.chips.ahbm.control.fan_out import ControlPath, FanOutChecker
from sipsim.chips.ahbm.control.launch import Begin, DirectLaunch, Launch, RoutedLaunch
from sipsim.chips.ahbm.control.path import LaunchPath, Place
from sipsim.chips.ahbm.ipcq.invariants import InvariantChecker
from sipsim.chips.ahbm.ipcq.messages import Message, WireCredit, WireFormat
from sipsim.chips.ahbm.ipcq.pe_ipcq import PeIpcq
from sipsim.chips.ahbm.ipcq.sip_generations import SipGenerations, map_rings
from sipsim.chips.ahbm.ipcq.transport import CreditSender, Ipcqs, MessageDelivery, MessageSender, header_deliveries
from sipsim.chips.ahbm.memory.mmu import PageTable, PeMmu
from sipsim.chips.ahbm.memory.ports import MemoryPorts, Wait
from sipsim.chips.ahbm.memory.store import MemoryStore
from sipsim.chips.ahbm.parts import PeParts, SipParts
from sipsim.chips.ahbm.pe.cpu import PeCpu
from sipsim.chips.ahbm.pe.dma import PeDma
from sipsim.chips.ahbm.pe.engine import Scheduler, Units
from sipsim.chips.ahbm.pe.tcm import TcmBudget
from sipsim.chips.ahbm.plan import Plan
from sipsim.chips.ahbm.processes import PartProcesses
from sipsim.chips.ahbm.usage import PartCounters, PeCounters, UsageMeter
from sipsim.core.engine import Engine
from sipsim.core.errors import InvariantViolation
from sipsim.core.session import Session
from sipsim.core.task import MakeTask, Task
from sipsim.core.units import BYTES_PER_KIB
from sipsim.fabric.buffered.ports import buffers_of
from sipsim.fabric.links.kind import LinkCredit
from sipsim.fabric.links.network import Deliveries, NetworkInterface, TakeControl
from sipsim.fabric.open import open_fabric
from sipsim.records.recorder import Recorder
from sipsim.records.replay import MakeSecondPass, SecondPass, Verdict

Ps = int


class Pe(PeParts):
    """PE in use. ``kernel_ps``: total run time in ps of the PE's kernels that have ended."""

    def __init__(self, sip: "Sip", cube: int, pe: int) -> None:
        self.sip = sip.sip
        self.cube = cube
        self.pe = pe
        self.sizes = sip.plan.system.n_pes, sip.plan.system.n_cubes, sip.plan.system.n_sips
        self.check_memory = sip.memory.check
        self.canonical = sip.memory.canonical
        self.number_handle = sip.handle_numbers[cube, pe].__next__
        components = sip.plan.resolved.components
        # Without virtual channels stores share the train of messages, whose transfers leave one after the other.
        stores = components.pe_dma.outstanding_stores if sip.plan.ipcq.virtual_channels else 1
        self.dma = PeDma(sip, self, "dma", stores)
        self.gemm_dma = PeDma(sip, self, "gemm", components.pe_gemm.outstanding_stores)
        self.task = self.run = None
        mmu, table = components.pe_mmu, sip.page_table
        self.mmu = None if mmu is None or table is None else PeMmu(self, mmu, table)
        self.cpu = PeCpu(sip, f"cube{cube}.pe{pe}")
        self.units = Units.idle()
        self.ipcq = PeIpcq(sip, self)
        layout, has_banks = components.tcm_layout, self.dma.tcm.port.depends_on_address
        place, is_checked = (sip.sip, cube, pe), sip.checker is not None
        self.room = TcmBudget(layout, place, has_banks, is_checked) if layout.handles_take_room else None
        self.submit = Scheduler(sip, self).submit
        self.phase = ""
        self.kernel_ps = 0
        self._recorder = sip.recorder

    @property
    def rank(self) -> int | None:
        """Rank of the PE in the wiring; None if it takes no part."""
        return self.ipcq.rank

    @property
    def world_size(self) -> int:
        """The number of ranks in the wiring."""
        return self.ipcq.world_size

    @property
    def last_polled_dir(self) -> str | None:
        """The direction that served the last receive without a direction."""
        return self.ipcq.last_polled_dir

    @property
    def translates_slots(self) -> bool:
        """Whether an MMU translates the kernel's addresses."""
        return self.mmu is not None

    def can_send(self, direction: str) -> bool:
        """Return whether a direction is installed for sending."""
        queue = self.ipcq.queues.get(direction)
        return queue is not None and queue.can_send

    def peer_ring(self, direction: str) -> tuple[int, int]:
        """Return the slots of the peer's ring in a direction, and their size in bytes."""
        peer = self.ipcq.queue(direction).peer
        return peer.n_slots, peer.slot_size

    def translate_slot(self, direction: str, nbytes: int) -> None:
        """Translate the peer's slot for a send, if the send is valid."""
        queue = self.ipcq.queues.get(direction) if isinstance(direction, str) else None
        if queue is None or not queue.can_send or not queue.has_va or nbytes > queue.peer.slot_size:
            return
        assert self.mmu is not None
        self.mmu.translate(queue.last_tx_slot_va(), nbytes)

    def settle(self) -> None:
        """Block the ending kernel until PE_CPU has issued all its commands; then free its slots and TCM space."""
        if self.task is not None:
            self.cpu.catch_up(self.task)
            self.ipcq.release_all(self.task.span)
            if self.room is not None:
                self.room.clear()

    def enter_phase(self, phase: str) -> None:
        """Set the phase of the kernel; an empty string means no phase."""
        self.phase = phase
        self._recorder.phase(f"cube{self.cube}.pe{self.pe}", phase)


class Sip(SipParts):
    """Hardware of SIP ``sip`` and its tasks. ``send(rank, batch)`` sends packets to another SIP.

    A ``Sip`` is the ``Model`` of a session, independent of processes, the broker and the host script. A PE is built at
    its first use. Parts with state that affects times are rebuilt at each row start (:meth:`begin_row`), so do not hold
    references to such parts across rows. ``handle_numbers``: by cube and PE, the number of the next handle.

    ``check_invariants`` enables ``sipsim.chips.ahbm.ipcq.invariants`` and the checks of ``sipsim.fabric``.
    ``keep_spans`` retains spans and transfers for ``sipsim.insight.explain``. ``second_pass`` creates the second pass;
    it is None if the job has no second pass.
    """

    def __init__(
        self,
        sip: int,
        plan: Plan,
        send: Callable[[int, PacketBatch], None],
        keep_oplog: bool = False,
        check_invariants: bool = False,
        keep_spans: bool = False,
        second_pass: MakeSecondPass | None = None,
    ) -> None:
        self.sip = sip
        self.plan = plan
        self.graph = plan.system.graph
        self.engine = Engine()
        reactions_ps = plan.reactions_ps
        self.session = Session(sip, self.engine, plan.channels, send, reactions_ps[sip], reactions_ps)
        self.session.model = self
        self.memory = MemoryStore(sip, plan.system.capacities, plan.system.spaces_of_cubes)
        mmu = plan.resolved.components.pe_mmu
        self.page_table = None if mmu is None else PageTable(mmu.page_KiB * BYTES_PER_KIB)
        self.recorder = Recorder(sip, keep_oplog, keep_spans)
        self.second_pass = None if second_pass is None else self._replay(second_pass)
        self.oplog = self.recorder.oplog
        self.wire_format = WireFormat(plan.ipcq)
        self.generations = SipGenerations(self, self.pe, keep_spans)
        self.closed = self.generations.closed
        self.barrier = Barrier(sip, plan, self.session, self.recorder)
        self.loop = greenlet.getcurrent()
        self.make_task: MakeTask = Task
        self.tasks: dict[Task, None] = {}
        self.handle_numbers: defaultdict[Place, count[int]] = defaultdict(count)
        self.memory_waits: list[Wait] | None = [] if keep_spans else None
        self._transfers: list[Any] | None = [] if keep_spans else None
        self._is_checked = check_invariants
        names = {link.src_port: link.name for link in plan.system.links if link.src == sip}
        self.usage = UsageMeter(self.engine, names, self.recorder, self._counters)
        self._make_parts()
        self._map_rings()

    def _make_parts(self) -> None:
        """Build all parts with state that affects times, at time 0 and at each row start."""
        plan, is_checked = self.plan, self._is_checked
        buffers = buffers_of(plan.resolved, plan.system.chunk_bytes)
        self.fabric = open_fabric(self.engine, plan.arbitration, buffers, is_checked, self._transfers)
        self.memory_ports = MemoryPorts(self.graph.memories, self.engine, plan.ipcq.hw_strict, self.memory_waits)
        self.checker = InvariantChecker(self.engine, self.memory) if is_checked else None
        self.ipcqs = Ipcqs(self._ipcq_of)
        self._join_network()
        self.control = self._make_control()
        is_free = self.control is None or plan.resolved.components.host_copies == "free"
        self.copies = None if is_free or self.control is None else HostCopies(self, self.control)
        self._pes: dict[Place, Pe] = {}
        if self.page_table is not None:
            # Drop the listeners of the previous row's MMUs.
            self.page_table.on_unmap.clear()
        for place, entries in plan.entries.items():
            if place.sip == self.sip and entries:
                # Messages may arrive before the PE runs a kernel.
                self.pe(place.cube, place.pe)
        self.processes = PartProcesses(self)

    def _join_network(self) -> None:
        """Build the ports, and the parts that send to and receive from other SIPs.

        A message over a link is simulated in pieces: one transfer over this SIP's edges and the link, a packet to the
        next SIP, and a transfer from the port there onwards. The packet states the length of its train, so that the
        next SIP continues exactly as a single fabric would.
        """
        deliveries: Deliveries = {Message: MessageDelivery(self), **header_deliveries(self)}
        controls: dict[type, TakeControl] = {BarrierPacket: self.barrier.receive}
        plan = self.plan
        egress_ps = plan.egress_ps[self.sip]
        self.network = NetworkInterface(
            plan.system, plan.channels, egress_ps, self.session, self.fabric, deliveries, controls
        )
        self.messages = MessageSender(self, self.network)
        self.credits = CreditSender(self, self.network)
        controls |= {LinkCredit: self.network.take_link_credit, WireCredit: self.credits.receive}

    def check_row_start(self) -> None:
        """Check at a row start that nothing is in flight on this SIP, and that all messages were received.

        Raises:
            InvariantViolation: if an event is left.
            IpcqInUse: if a message was not received.
            ProcessMisuse: if a foreground process of a part is left.
        """
        self.processes.check_row_start()
        last_ps = self.engine.last_local_ps()
        if last_ps is not None:
            raise InvariantViolation(f"SIP {self.sip}: a row starts while events are pending until {last_ps} ps")
        for pe in self.pes_in_use():
            pe.ipcq.generations.check_received()

    def begin_row(self, cause: int) -> None:
        """Start a row now, because of span ``cause``: rebuild all parts as at time 0; counters continue.

        Nothing may be in flight on any SIP (:meth:`check_row_start`), and only the plan's queue pairs may be open.

        Raises:
            InvariantViolation: if a queue pair is not idle, or is not in the plan.
        """
        self.usage.begin_row()
        before, self._pes = self._pes, {}
        self._make_parts()
        for key, pe in before.items():
            if pe.ipcq.every:
                self.pe(*key).ipcq.continue_from(pe.ipcq, cause)

    def verdict(self) -> Verdict | None:
        """Return the verdict of the second pass, at the end of the run; None without a second pass."""
        if self.second_pass is None or self.recorder.feed is None:
            return None
        self.recorder.feed.drain()
        return self.second_pass.verdict(self.memory)

    def _replay(self, make: MakeSecondPass) -> SecondPass:
        system = self.plan.system
        second_pass = make(MemoryStore(self.sip, system.capacities, system.spaces_of_cubes))
        self.memory.listeners.append(self.recorder.replay(second_pass, lambda: self.engine.now_ps))
        return second_pass

    def pe(self, cube: int, pe: int) -> Pe:
        """Return a PE, built at its first use."""
        key = (cube, pe)
        if key not in self._pes:
            self._pes[key] = Pe(self, cube, pe)
            self.ipcqs[key] = self._pes[key].ipcq
        return self._pes[key]

    def _ipcq_of(self, cube: int, pe: int) -> PeIpcq | None:
        system = self.plan.system
        return self.pe(cube, pe).ipcq if cube < system.n_cubes and pe < system.n_pes else None

    def install(self, generation: int, plan: InstallPlan, pe_of_rank: Sequence[PePlace]) -> None:
        """Install this SIP's part of a generation of queue pairs (:meth:`SipGenerations.install`)."""
        self.generations.install(generation, plan, pe_of_rank)

    def close(self, generation: int) -> None:
        """Close this SIP's part of a generation of queue pairs (:meth:`SipGenerations.close`)."""
        self.generations.close(generation)

    def pes_in_use(self) -> list[Pe]:
        """Return the PEs in use, in order of cube and PE."""
        return [self._pes[key] for key in sorted(self._pes)]

    def spawn(self, pe: Pe, body: Callable[[], None], cause: int = 0) -> Task:
        """Start a kernel on a PE now, because of span ``cause``, after the events that are already due."""
        task = self.make_task(f"cube {pe.cube}, PE {pe.pe}", body, self.loop, (pe.cube, pe.pe))
        task.span, task.since_ps = cause, self.engine.now_ps
        if pe.task is not None:
            self.tasks.pop(pe.task, None)
        pe.task = task
        self.tasks[task] = None
        self.engine.at(self.engine.now_ps, task.resume)
        return task

    def launch(
        self, places: Sequence[Place], begin: Begin, done: Callable[[int], None], cause: int, run: int | None
    ) -> Launch:
        """Launch kernels. ``begin`` starts a kernel; ``done(span)`` is called when the host sees the last end."""
        done = self.processes.of_launch(done)
        if self.control is None:
            return DirectLaunch(places, begin, done, cause)
        return RoutedLaunch(self.control, self.sip, places, begin, done, cause, run)

    def _make_control(self) -> ControlPath | None:
        if self.plan.resolved.components.launch is None:
            return None
        checker = None if self.checker is None else FanOutChecker(self.sip)
        path = LaunchPath(self.plan.resolved, self.graph)
        return ControlPath(self.engine, self.fabric, self.graph, path, self.recorder, checker)

    def receive(self, channel: int, body: bytes) -> None:
        """Take a packet whose last byte arrives over a link now."""
        self.network.receive(channel, body)

    def next_send_bound_ps(self, next_ps: int) -> int:
        """Return a lower bound of the time of the next packet that local events send; the first is at ``next_ps``."""
        return self.network.next_send_bound_ps(next_ps)

    def waiting(self) -> int:
        """Return the number of tasks and processes of parts that have not ended, without servers."""
        self.tasks = {task: None for task in self.tasks if not task.ended}
        return len([task for task in (*self.tasks, *self.engine.env.processes) if not task.is_server])

    def _counters(self) -> PartCounters:
        """Return the counters of the parts since the row start."""
        network = self.network
        sent = {letter: (port.bytes_sent, port.credit_bytes) for letter, port in network.by_letter.items()}
        return PartCounters(self.fabric.use(), sent, self._lookups(), self._engines(), network.outages_used())

    def _lookups(self) -> dict[Place, tuple[int, int]]:
        """Return hits and misses of each TLB, by cube and PE."""
        pes = self.pes_in_use() if self.page_table is not None else []
        return {(pe.cube, pe.pe): (pe.mmu.hits, pe.mmu.misses) for pe in pes if pe.mmu is not None}

    def _engines(self) -> dict[str, PeCounters]:
        """Return the counters of each PE whose PE_GEMM has worked."""
        pes = [pe for pe in self.pes_in_use() if pe.units.gemm.busy_ps] if self.recorder.composite_ps else []
        return {
            f"cube{pe.cube}.pe{pe.pe}": PeCounters({unit.name: unit.busy_ps for unit in pe.units}, pe.kernel_ps)
            for pe in pes
        }

    def _map_rings(self) -> None:
        """Map the rings of the plan, if MMUs translate their addresses."""
        for place, entries in self.plan.entries.items():
            if place.sip == self.sip and self.page_table is not None:
                map_rings(self.page_table, place, entries, 0)
