"""Plan of chip ``ahbm``: the system, the algorithm, and the queue pairs of every PE."""

from collections.abc import Callable, Sequence
from functools import cached_property
from math import gcd
from typing import Any

import msgspec

from broker.ids import Channel
from sipsim.chips.ahbm.address import PePlace, Region
from sipsim.chips.ahbm.barrier_tree import BarrierTree
from sipsim.chips.ahbm.collectives.algorithm import Algorithm, is_own, source_hash
from sipsim.chips.ahbm.collectives.catalog import Catalog
from sipsim.chips.ahbm.collectives.launch import WorkerSettings
from sipsim.chips.ahbm.collectives.neighbours import TABLES, NeighbourTable
from sipsim.chips.ahbm.collectives.queue_pairs import (
    InstallPlan,
    check_endpoints,
    check_rings_disjoint,
    install,
    places_in_order,
    ring_memory,
)
from sipsim.chips.ahbm.collectives.reference import group_results
from sipsim.chips.ahbm.collectives.rules import group_kinds
from sipsim.chips.ahbm.collectives.settings import (
    canonical_algorithm,
    canonical_groups,
    credit_modes,
    effective_ipcq,
    effective_opposites,
    effective_rank_per,
    effective_world_size,
    least_credit_bytes,
)
from sipsim.chips.ahbm.collectives.wirings import PAIR_BYTES, Communicator, WindowAllocator
from sipsim.chips.ahbm.costs.bounds import ChipBounds, InstalledBounds, shortest_windows_ps
from sipsim.chips.ahbm.costs.stack import Stack, stack_of
from sipsim.chips.ahbm.ipcq.backpressure import backpressure_of
from sipsim.chips.ahbm.ipcq.credits import credit_mode_of
from sipsim.chips.ahbm.ipcq.messages import IpcqInitEntry
from sipsim.chips.ahbm.mesh import part_kinds
from sipsim.chips.ahbm.system import AhbmSystem
from sipsim.chips.api.run_plan import RowReduction, RunPlan, reactions_ps
from sipsim.collectives.call import Array
from sipsim.collectives.group import Group
from sipsim.collectives.reduction import ROUNDED, rows_differ
from sipsim.collectives.schedule import units
from sipsim.collectives.semantics import COLLECTIVES, Task
from sipsim.config.schema import IpcqKnobs, Resolved
from sipsim.core.dtypes import DTYPES
from sipsim.core.units import BYTES_PER_KIB, format_time_ps, ns_to_ps
from sipsim.fabric.channels import ONE_QUEUE, Arbitration
from sipsim.records.report import SEND_RECV, RunRecord


class Plan(RunPlan):
    """Plan of a run on chip ``ahbm``, with the wiring of its algorithm.

    ``pe_of_rank`` lists the PEs by rank in the wiring, ``rank_of`` is the inverse map, ``world_size`` the number of
    ranks, and ``world`` the communicator of all ranks. A rank of the process group is different: it is a SIP.

    Raises:
        ConfigError: if the algorithm cannot be loaded or does not run on this system (ADR-0023 F4).
    """

    system: AhbmSystem

    def __init__(self, resolved: Resolved) -> None:
        self.resolved = resolved
        name = resolved.ccl.defaults.algorithm
        self.ipcq: IpcqKnobs = effective_ipcq(resolved, name)
        self.system = AhbmSystem(resolved, self.ipcq)
        self.algorithm = Algorithm(name, resolved.ccl.algorithms[name])
        self.algorithm.check_root_cube(self.system)
        self.ipcq_overhead_ps = ns_to_ps(resolved.components.pe_ipcq.overhead_ns)
        self.issue_ps = ns_to_ps(resolved.components.pe_cpu.issue_ns)
        self.backpressure = backpressure_of(self.ipcq, resolved.components.pe_cpu)
        self.pe_of_rank: list[PePlace] = self._places()
        self.rank_of: dict[PePlace, int] = {place: rank for rank, place in enumerate(self.pe_of_rank)}
        self.world_size = len(self.pe_of_rank)
        one_way = TABLES.get(self.algorithm.entry.topology).one_way
        self.entries: InstallPlan = install(
            self.system,
            self.ipcq,
            self.pe_of_rank,
            self._neighbour_table(),
            one_way,
            effective_opposites(resolved, name),
        )
        check_rings_disjoint(self.entries)
        check_endpoints(self.entries, self.ipcq.buffer_kind)
        self.world = Communicator(self.algorithm, self.pe_of_rank, self.entries)

    def entries_of(self, place: PePlace) -> list[IpcqInitEntry]:
        """Return the queue pairs of one PE; empty for a PE without a rank."""
        return self.entries.get(place, [])

    @cached_property
    def arbitration(self) -> Arbitration:
        """Arbitration of the virtual channels on an edge; a single queue without virtual channels."""
        knobs = self.ipcq
        if not knobs.virtual_channels:
            return ONE_QUEUE._replace(chunk_bytes=self.system.chunk_bytes)
        common = gcd(knobs.vc_compute_weight, knobs.vc_comm_weight)
        weights = (knobs.vc_compute_weight // common, knobs.vc_comm_weight // common, 0)
        return Arbitration(self.system.chunk_bytes, weights)

    @cached_property
    def piggyback_wait_ps(self) -> int:
        """Longest time in ps that a credit waits for a message to carry the credit."""
        return ns_to_ps(self.ipcq.piggyback_wait_ns)

    def _plan_ring_bytes(self, kind: str) -> int:
        """Return the bytes that the plan's rings take in a PE's memory of this kind: the maximum over PEs."""
        if self.ipcq.buffer_kind != kind:
            return 0
        n_entries = max((len(entries) for entries in self.entries.values()), default=0)
        return n_entries * self.ipcq.n_slots * self.ipcq.slot_size

    @cached_property
    def ring_pools(self) -> dict[str, Region]:
        """Regions of a PE for the rings of groups, by kind of memory (:func:`group_kinds`).

        A pool in the TCM is the rest of the IPCQ region, in SRAM the rest of the PE's share. A pool in HBM lies below
        the plan's rings and has the size of the TCM's IPCQ region.
        """
        pools = {}
        for kind in group_kinds(self.resolved):
            memory, taken = ring_memory(self.system, kind), self._plan_ring_bytes(kind)
            free = max(memory.size - taken, 0)
            if kind == "hbm":
                size = min(self.system.tcm.ipcq.size, free)
                pools[kind] = Region(free - size, size)
            else:
                pools[kind] = Region(memory.offset + taken, free)
        return pools

    def new_windows(self) -> WindowAllocator:
        """Return an allocator of all windows for the rings of groups."""
        nbytes = self.resolved.ccl.defaults.group_KiB * BYTES_PER_KIB
        return WindowAllocator(self.system.n_sips, self.ring_pools, nbytes + PAIR_BYTES)

    @cached_property
    def catalog(self) -> Catalog:
        """Algorithms of the config."""
        return Catalog(self.resolved)

    @property
    def why_not_wired(self) -> str:
        """Short reason why no collective that is wired before the run can run; empty if one can."""
        if not self.algorithm.is_schedule:
            return ""
        runs, wired = ", ".join(self.algorithm.collectives), ", ".join(self.catalog.wired)
        return f"algorithm {self.algorithm.name} runs {runs}; algorithms wired before the run: {wired}"

    @cached_property
    def worker_settings(self) -> WorkerSettings:
        """Settings of the workers of groups' collectives."""
        defaults = self.resolved.ccl.defaults
        return WorkerSettings(defaults.workers, defaults.worker_bytes, self.system.tcm.kernel.size)

    @cached_property
    def stack(self) -> Stack | None:
        """HBM stack of a cube; None if the config names no device with a published bandwidth."""
        return stack_of(self.resolved, self.ipcq)

    @cached_property
    def hbm_room_bytes(self) -> int:
        """Bytes of each PE's HBM slice for tensors: the whole slice, or the part below receive rings in HBM."""
        pool = self.ring_pools.get("hbm")
        return pool.offset if pool else self.system.capacities["hbm"] - self._plan_ring_bytes("hbm")

    @cached_property
    def credit_channel(self) -> dict[tuple[int, int], int]:
        """Index of the credit channel from one SIP to another."""
        first = len(self.system.links)
        return {(c.src, c.dst): first + i for i, c in enumerate(self.channels[first:])}

    @cached_property
    def bounds(self) -> ChipBounds:
        """Synchronization bounds that hold for any PE."""
        with self.resolved.reads.apart():
            modes, credit_bytes = credit_modes(self.resolved), least_credit_bytes(self.resolved)
        return ChipBounds(self.system, modes, credit_bytes, self.ipcq_overhead_ps, self.ipcq.has_doorbells)

    @cached_property
    def installed_bounds(self) -> InstalledBounds:
        """Synchronization bounds that would hold if only the plan's queue pairs existed."""
        channels = self.system.data_channels()
        return InstalledBounds(self.system, self.entries, channels, self.ipcq_overhead_ps, self.ipcq.has_doorbells)

    @cached_property
    def egress_ps(self) -> list[int]:
        """Least time per SIP from an event to a packet. It holds for any PE, so later queue pairs change no bound.

        A message, a doorbell or a credit over the fabric passes PE_IPCQ and leaves its source before it is on the link;
        the acknowledgement before a doorbell does not pass PE_IPCQ. A fast-path
        credit arrives one path latency after the ``recv`` that frees the slot; the egress of the credit is this latency
        minus the pair's least delay.
        """
        return self.bounds.egress_ps(self.channels, self.pair_delay_ps)

    @property
    def n_rows(self) -> int:
        """Rows of a SIP's tensors: one per cube."""
        return self.system.n_cubes

    @property
    def n_cubes(self) -> int:
        """Cubes per SIP."""
        return self.system.n_cubes

    def canonical_view(self) -> dict[str, Any]:
        """Return the system, the algorithm, and the meaning of ``all_reduce`` if it differs from torch's."""
        meaning = self.resolved.ccl.defaults.all_reduce
        view = {**super().canonical_view(), "algorithm": canonical_algorithm(self.resolved, self.algorithm.name)}
        return view if meaning == "elementwise" else {**view, "all_reduce": meaning}

    def digest_lines(self) -> list[str]:
        """Return settings of the host's copies and of groups, all queue pairs, and the sources of users' algorithms.

        The program's version covers the sources of built-in algorithms.
        """
        entries = (f"{tuple(place)} {entries}" for place, entries in sorted(self.entries.items()))
        groups = msgspec.json.encode(canonical_groups(self.resolved), order="sorted").decode()
        modules = sorted({entry.module for entry in self.resolved.ccl.algorithms.values()})
        sources = (f"{module} {source_hash(module)}" for module in modules if not is_own(module))
        return [str(self.system.copy_settings()), *entries, groups, *sources]

    def definitions(self) -> list[str]:
        """Return what the base class returns, and the registered names of parts, memories and the neighbour table."""
        memories = (memory.cost.kind for memory in self.system.graph.memories.values())
        chosen = [*part_kinds(self.resolved), *filter(None, memories), self.algorithm.entry.topology]
        return [*super().definitions(), *chosen]

    @property
    def reference(self) -> Callable[..., Any] | None:
        """Reference function of the algorithm."""
        return self.algorithm.reference

    def group_results(self, run: RunRecord, sources: Sequence[Array | None]) -> list[Array | None]:
        """Return the results by the algorithm's schedule; for a send/recv pair, the sent array."""
        if run.collective == SEND_RECV:
            return [None, sources[0]]
        return group_results(self.catalog.get(run.algorithm), self._task_of(run), run.op, sources)

    def has_tensors(self, run: RunRecord, rank: int) -> tuple[bool, bool]:
        """Return whether a rank has input and output, by the definition of the collective."""
        if run.collective == SEND_RECV:
            return rank == 0, rank == 1
        task = self._task_of(run)
        collective, every = task.collective, range(units(task.collective.cut, task.size))
        holds = any(collective.holds(unit, rank, task.size, task.root) for unit in every)
        return holds, any(collective.needs(unit, rank, task.size, task.root) for unit in every)

    def _task_of(self, run: RunRecord) -> Task:
        collective = COLLECTIVES.get(run.collective)
        group, root = Group(run.sips, self.system), run.values[0] if collective.has_root else 0
        n_elem = run.count // max(collective.elements(1, group.size))
        itemsize, room_bytes = DTYPES[run.dtype].itemsize, self.worker_settings.room_bytes
        return Task(collective, group, n_elem, itemsize, root, run.in_place, run.workers, room_bytes)

    def rows_differ(self, added: RowReduction) -> bool:
        """Return whether rows may differ by rounding: by the algorithm's ``reference``, or its ``rank_identical``."""
        collective, n_sips = COLLECTIVES.get(added.collective), self.system.n_sips
        dtype = DTYPES[added.dtype]
        if not collective.per_cube:
            rounds = dtype.exact_int is not None and added.op in ROUNDED
            return rounds and collective.is_shared and self.catalog.get(added.algorithm).rank_identical is not True
        shape = (self.system.n_cubes, added.n_elem)
        return self.reference is not None and rows_differ(self.reference, self.system, n_sips, shape, dtype)

    @cached_property
    def barrier_tree(self) -> BarrierTree:
        """Tree of links along which all SIPs agree on a common start."""
        return BarrierTree(self.system, self.channels, self.egress_ps)

    def sync_notes(self) -> list[str]:
        """Return a line that states how much shorter windows are because the bounds hold for any PE and any peer."""
        in_force, installed = (sum(windows) for windows in self.shortest_windows_ps())
        if not in_force or not installed:
            return []
        mean = [format_time_ps(total // self.system.n_sips) for total in (in_force, installed)]
        lost = f"{max(installed - in_force, 0) / installed:.1%}"
        return [
            f"shortest windows, mean of SIPs: {mean[0]} by bounds for any PE, {mean[1]} by bounds for the plan's queue "
            f"pairs only; {lost} lost, so that scripts may install queue pairs during the run"
        ]

    def notes(self) -> list[str]:
        """Return a line with the algorithm, the number of participants, and the neighbour table, if any.

        The line does not say "ranks": to users a rank is a SIP.
        """
        name, topology = self.algorithm.name, self.algorithm.entry.topology
        table = "" if TABLES.get(topology).self_wired else f", neighbour table {topology}"
        count = f"{self.world_size} participant{'s' * (self.world_size != 1)}"
        per = {"pe": "PE", "cube": "cube", "sip": "SIP"}[effective_rank_per(self.resolved, name)]
        return [f"algorithm {name}: {count}, one per {per}{table}"]

    def data_channels(self) -> list[Channel]:
        """Return the channels of the links, with lookaheads short enough for far credits."""
        lookahead_ps = self.bounds.lookahead_ps
        every = enumerate(super().data_channels())
        return [channel._replace(delay_ps=lookahead_ps(number, channel.delay_ps)) for number, channel in every]

    def extra_channels(self) -> list[Channel]:
        """Return a channel of fast-path credits per ordered pair of SIPs that a link joins
        (:mod:`sipsim.chips.ahbm.costs.bounds`).
        """
        return self.bounds.credit_channels()

    def more_reactions_ps(self, sip: int) -> list[int]:
        """Return the reaction of a SIP that far credits pass through, if there are far credits."""
        return [self.bounds.transit_ps(sip, self.channels)] if self.bounds.has_far_credits else []

    def shortest_windows_ps(self) -> tuple[list[int], list[int]]:
        """Return two lists of the shortest window per SIP: by the bounds in force, and by :attr:`installed_bounds`."""
        system, installed = self.system, self.installed_bounds
        egress_ps = self.egress_ps if self.algorithm.is_schedule else installed.egress_ps()
        own = reactions_ps(system, egress_ps, installed.has_transit())
        return (
            shortest_windows_ps(system.n_sips, self.channels, self.egress_ps, self.reactions_ps),
            shortest_windows_ps(system.n_sips, installed.channels, egress_ps, own),
        )

    def credit_mode(self, src_sip: int, dst_sip: int, direction: str) -> str:
        """Return the credit return mode of a queue pair from SIP ``src_sip`` in ``direction`` to SIP ``dst_sip``."""
        system, port = self.system, None
        if src_sip != dst_sip:
            port = system.port_towards(src_sip, dst_sip, direction)
        return credit_mode_of(self.ipcq.credit_return_mode, system.is_die_to_die(src_sip, dst_sip, port))

    def has_transit(self) -> bool:
        """Return whether messages may pass through a SIP that is not their destination."""
        return not self.bounds.all_are_joined

    def _places(self) -> list[PePlace]:
        name = self.algorithm.name
        size = effective_world_size(self.resolved, name)
        return places_in_order(self.system, effective_rank_per(self.resolved, name), size)

    def _neighbour_table(self) -> NeighbourTable:
        """Return the neighbour table. On a topology that the algorithm does not support the table is empty, and calls
        of the algorithm are refused.
        """
        if not self.algorithm.runs_on(self.system.topology):
            return {}
        return self.algorithm.neighbour_table(self.system, self.world_size)
