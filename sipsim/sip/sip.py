"""One SIP: engine, fabric, memory and the PEs that take part, each made at its first use.

It is the ``Model`` of a session, and independent of processes, of the broker's rules, and of the host script.
"""

from collections.abc import Callable, Mapping, Sequence

import greenlet

from broker.wire import PacketBatch
from sipsim.ccl.install import InstallPlan
from sipsim.control.checks import FanOutChecker
from sipsim.control.fan_out import ControlPath
from sipsim.control.launch import Begin, DirectLaunch, Launch, RoutedLaunch
from sipsim.engine import Engine
from sipsim.io.ipcq_deliveries import Ipcqs
from sipsim.io.network_interface import NetworkInterface
from sipsim.ipcq.context import IpcqContext
from sipsim.ipcq.credit_return import CreditReturn
from sipsim.ipcq.flits import WireFormat
from sipsim.ipcq.invariants import InvariantChecker
from sipsim.ipcq.pe_ipcq import PeIpcq
from sipsim.memory.mmu.page_table import PageTable
from sipsim.memory.mmu.pe_mmu import PeMmu
from sipsim.memory.port import MemoryPorts
from sipsim.memory.store import MemoryStore
from sipsim.noc.buffered.depth import buffers_of
from sipsim.noc.fabrics import open_fabric
from sipsim.noc.graph import Node
from sipsim.pe.cpu import PeCpu
from sipsim.pe.dma import PeDma
from sipsim.pe.room import KernelRoom
from sipsim.pe.scheduler import Scheduler
from sipsim.pe.unit import GEMM, UNITS, Unit
from sipsim.plan.launch_path import LaunchPath, Place
from sipsim.plan.plan import Plan
from sipsim.record.recorder import Recorder
from sipsim.record.replay.second_pass import SecondPass
from sipsim.record.replay.verdict import Verdict
from sipsim.sip.generations import SipGenerations, map_rings
from sipsim.sip.usage_meter import EngineCounters, PeCounters, UsageMeter
from sipsim.sync.session import Session
from sipsim.task import MakeTask, Task
from sipsim.topology.address import PePlace
from sipsim.units import BYTES_PER_KIB


class Pe:
    """A PE in use: its parts; the task, phase and collective of its kernel, and its rank in the wiring that this sees.

    ``kernel_ps``: how long kernels ran on it that have ended.
    """

    def __init__(self, sip: "Sip", cube: int, pe: int) -> None:
        self.cube = cube
        self.pe = pe
        self.dma = PeDma(sip, Node("pe", cube, pe), sip.plan.resolved.components.pe_dma)
        self.task: Task | None = None
        self.mmu = self._make_mmu(sip)
        self.cpu = PeCpu(sip, f"cube{cube}.pe{pe}")
        self.units: Mapping[str, Unit] = {name: Unit(name) for name in UNITS}
        self.ipcq = self._make_ipcq(sip)
        layout = sip.plan.resolved.components.tcm_layout
        self.room = KernelRoom(layout, cube, pe, sip.checker is not None) if layout.handles_take_room else None
        scheduler = Scheduler(sip, self)
        self.submit = scheduler.submit
        self.number_handle = scheduler.number_handle
        self.phase = ""
        self.run: int | None = None
        self.kernel_ps = 0
        self._recorder = sip.recorder

    @property
    def rank(self) -> int | None:
        """Its rank in the wiring; None where it takes no part."""
        return self.ipcq.rank

    def settle(self) -> None:
        """Block its kernel, which ends, until PE_CPU has issued all its commands; free the slots in its use."""
        if self.task is not None:
            self.cpu.catch_up(self.task)
            self.ipcq.slots.release_all(self.task.span)
            if self.room is not None:
                self.room.clear()

    def enter_phase(self, phase: str) -> None:
        """Its kernel is in a phase from now on; empty: in none."""
        self.phase = phase
        self._recorder.phase(f"cube{self.cube}.pe{self.pe}", phase)

    def _make_mmu(self, sip: "Sip") -> PeMmu | None:
        cost = sip.plan.resolved.components.pe_mmu
        if cost is None or sip.page_table is None:
            return None
        return PeMmu(self, cost, sip.page_table)

    def _make_ipcq(self, sip: "Sip") -> PeIpcq:
        plan = sip.plan
        carrier = sip.network.credits
        credit_return = CreditReturn(sip.engine, carrier, plan.ipcq_overhead_ps, plan.piggyback_wait_ps)
        context = IpcqContext(
            sip.engine,
            sip.memory,
            sip.network.messages,
            self.dma,
            plan.backpressure,
            credit_return,
            sip.recorder,
            sip.checker,
            plan.ipcq.latch,
            None if self.mmu is None else self.mmu.look_up,
            sip.generations.closed,
        )
        place = PePlace(sip.sip, self.cube, self.pe)
        return PeIpcq(place[:3], plan.entries_of(place), context, plan.rank_of.get(place), plan.world_size)


class Sip:
    """The hardware of SIP ``sip`` and its tasks. ``send`` takes packets for other SIPs.

    ``check_invariants`` turns on ``sipsim.ipcq.invariants`` and ``sipsim.noc.witness``. ``keep_spans`` retains spans
    and transfers, for ``sipsim.explain``. ``replays``: there is a second pass (:mod:`sipsim.record.replay`).
    """

    def __init__(
        self,
        sip: int,
        plan: Plan,
        send: Callable[[int, PacketBatch], None],
        keep_oplog: bool = False,
        check_invariants: bool = False,
        keep_spans: bool = False,
        replays: bool = False,
    ) -> None:
        self.sip = sip
        self.plan = plan
        self.graph = plan.system.graph
        self.engine = Engine()
        reactions_ps = plan.reactions_ps
        self.session = Session(sip, self.engine, plan.channels, send, reactions_ps[sip], reactions_ps)
        self.session.model = self
        buffers = buffers_of(plan.resolved, plan.ipcq.vc_chunk_size)
        self.fabric = open_fabric(self.engine, plan.arbitration, buffers, check_invariants, keep_spans)
        self.memory = MemoryStore(sip, plan.system.capacities, plan.system.spaces_of_cubes)
        mmu = plan.resolved.components.pe_mmu
        self.page_table = None if mmu is None else PageTable(mmu.page_KiB * BYTES_PER_KIB)
        self.memory_ports = MemoryPorts(self.graph.memories, self.engine, self.memory, check_invariants, keep_spans)
        self.recorder = Recorder(sip, keep_oplog, keep_spans)
        self.second_pass = self._replay() if replays else None
        self.oplog = self.recorder.oplog
        self.wire_format = WireFormat(plan.ipcq.hw_strict)
        self.checker = InvariantChecker(self.engine, self.memory) if check_invariants else None
        self.ipcqs = Ipcqs(self._ipcq_of)
        self.generations = SipGenerations(self, keep_spans)
        self.network = NetworkInterface(
            sip, plan, self.session, self.recorder, self.fabric, self.memory_ports, self.wire_format, self.ipcqs
        )
        names = {link.src_port: link.name for link in plan.system.links if link.src == sip}
        self.control = self._make_control()
        ports = self.network.ports.by_letter
        self.usage = UsageMeter(self.engine, self.fabric, names, ports, self._lookups, self._engines)
        self.loop = greenlet.getcurrent()
        self.make_task: MakeTask = Task
        self.tasks: list[Task] = []
        self._pes: dict[tuple[int, int], Pe] = {}
        self._wire_ipcqs()

    def verdict(self) -> Verdict | None:
        """What the second pass has found, at the end of the run; None without one."""
        if self.second_pass is None or self.recorder.feed is None:
            return None
        self.recorder.feed.drain()
        return self.second_pass.verdict(self.memory)

    def _replay(self) -> SecondPass:
        system = self.plan.system
        second_pass = SecondPass(self.sip, MemoryStore(self.sip, system.capacities, system.spaces_of_cubes))
        self.memory.listeners.append(self.recorder.replay(second_pass, lambda: self.engine.now_ps))
        return second_pass

    def pe(self, cube: int, pe: int) -> Pe:
        """A PE; it is made at its first use."""
        key = (cube, pe)
        if key not in self._pes:
            self._pes[key] = Pe(self, cube, pe)
            self.ipcqs[key] = self._pes[key].ipcq
        return self._pes[key]

    def _ipcq_of(self, cube: int, pe: int) -> PeIpcq | None:
        system = self.plan.system
        return self.pe(cube, pe).ipcq if cube < system.n_cubes and pe < system.n_pes else None

    def install(self, generation: int, plan: InstallPlan, pe_of_rank: Sequence[PePlace]) -> None:
        """Make this SIP's part of a generation of queue pairs, see :meth:`SipGenerations.install`."""
        self.generations.install(generation, plan, pe_of_rank)

    def close(self, generation: int) -> None:
        """End this SIP's part of a generation of queue pairs, see :meth:`SipGenerations.close`."""
        self.generations.close(generation)

    def pes_in_use(self) -> list[Pe]:
        """Every PE in use, in order of cube and PE."""
        return [self._pes[key] for key in sorted(self._pes)]

    def spawn(self, pe: Pe, body: Callable[[], None], cause: int = 0) -> Task:
        """Start a kernel on a PE now, released by span ``cause``, after the events that are already due."""
        task = self.make_task(f"cube {pe.cube}, PE {pe.pe}", body, self.loop, (pe.cube, pe.pe))
        task.span, task.since_ps = cause, self.engine.now_ps
        pe.task = task
        self.tasks.append(task)
        self.engine.at(self.engine.now_ps, task.resume)
        return task

    def launch(
        self, places: Sequence[Place], begin: Begin, done: Callable[[int], None], cause: int, run: int | None
    ) -> Launch:
        """Launch kernels on these PEs: ``begin`` starts each, ``done`` is called when the host knows that all ended."""
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
        """The last byte of a packet arrives over a link now."""
        self.network.receive(channel, body)

    def next_send_bound_ps(self, next_ps: int) -> int:
        """No packet is sent before this time by local events, of which the first is at ``next_ps``."""
        return self.network.ports.next_send_bound_ps(next_ps)

    def waiting(self) -> int:
        """The number of tasks that have not ended, servers aside."""
        self.tasks = [task for task in self.tasks if not task.ended]
        return len([task for task in self.tasks if not task.is_server])

    def _lookups(self) -> dict[str, tuple[int, int]]:
        """Hits and misses of each TLB, by PE."""
        pes = self.pes_in_use() if self.page_table is not None else []
        return {f"cube{pe.cube}.pe{pe.pe}": (pe.mmu.hits, pe.mmu.misses) for pe in pes if pe.mmu is not None}

    def _engines(self) -> EngineCounters:
        """Counters of each PE that has multiplied, and of the products."""
        recorder = self.recorder
        pes = [pe for pe in self.pes_in_use() if pe.units[GEMM].busy_ps] if recorder.composite_ps else []
        counters = {
            f"cube{pe.cube}.pe{pe.pe}": PeCounters(
                {name: unit.busy_ps for name, unit in pe.units.items()}, pe.kernel_ps
            )
            for pe in pes
        }
        return EngineCounters(counters, dict(recorder.composite_ps), recorder.peak_ps)

    def _wire_ipcqs(self) -> None:
        """Make the PEs with queue pairs: messages may arrive before they run a kernel."""
        for place, entries in self.plan.entries.items():
            if place.sip == self.sip and entries:
                self.pe(place.cube, place.pe)
                if self.page_table is not None:
                    map_rings(self.page_table, place, entries, 0)
