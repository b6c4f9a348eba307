"""API of host scripts on Tensix chips (third argument): tiles, links, programs. Calls take no simulated time."""

from collections.abc import Callable, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, NoReturn

from sipsim.chips.tensix import programs
from sipsim.chips.tensix.arguments import (
    Count,
    Natural,
    Within,
    any_whole,
    checked,
    one_of,
    ranks,
    some_of,
    whole,
    worker_tile,
)
from sipsim.chips.tensix.ccl.calls import Calls
from sipsim.chips.tensix.ccl.fabric_operations import FabricOperations
from sipsim.chips.tensix.ccl.host_tensors import HostTensors
from sipsim.chips.tensix.ccl.operations import Collectives
from sipsim.chips.tensix.ccl.participants import Participants
from sipsim.chips.tensix.ccl.placement import MemoryConfig
from sipsim.chips.tensix.ccl.rooted import RootedCollectives
from sipsim.chips.tensix.ccl.tensors import Store
from sipsim.chips.tensix.cluster import Cluster
from sipsim.chips.tensix.edm.builder import EriscDataMoverBuilder
from sipsim.chips.tensix.edm.layout import BufferSharingMode, TerminationMode, WorkerSignal, layout
from sipsim.chips.tensix.fabric.fabric import ROLES, Fabric, Places
from sipsim.chips.tensix.memory import ATOMIC_BYTES
from sipsim.chips.tensix.noc import NOCS, Core, Kind
from sipsim.chips.tensix.params import ChipParams
from sipsim.chips.tensix.programs import KernelSpec, Program
from sipsim.chips.tensix.tiles import KIB
from sipsim.core.errors import KernelMisuse, NoSuchCall
from sipsim.core.registry import nearest
from sipsim.core.task import makes_generator, reason_not_callable
from sipsim.core.units import PS_PER_NS, drain_ps

PARTS = HostTensors, Collectives, RootedCollectives
"""The classes whose calls are calls of :class:`Metal`, too."""
WITH_L1 = Kind.TENSIX, Kind.ETHERNET
MOST_OF_WORD = 2 ** (8 * ATOMIC_BYTES) - 1
SEMAPHORE_AREA = 4096
"""Bytes of L1 at the start of a kernel's area: semaphores and, on Ethernet cores, words of flow control."""


@checked("tt")
class Metal:
    """Interface of a host program to chip ``rank`` of ``world_size`` chips. For calls on tensors see ``PARTS``."""

    DataMovementConfig = programs.DataMovementConfig
    EthernetConfig = programs.EthernetConfig
    WorkerSignal = WorkerSignal
    MemoryConfig = MemoryConfig

    def __init__(self, chip: Any) -> None:
        self._chip = chip
        self._plan = chip.plan
        self.rank: int = chip.session.rank
        self.world_size: int = self._plan.system.n_sips
        base, participants = self.l1_base(self.workers[0]), Participants(chip)
        store, calls = Store(self._plan.floor_plan, self.params, base), Calls(chip, participants, self.open_fabric)
        over_fabric = FabricOperations(chip, calls, store, base)
        tensors, ccl = HostTensors(chip, store, participants), Collectives(calls, store, over_fabric)
        rooted = RootedCollectives(calls, store, over_fabric)
        self.tensor, self.mesh_tensor, self.to_numpy = tensors.tensor, tensors.mesh_tensor, tensors.to_numpy
        self.all_gather, self.reduce_scatter = ccl.all_gather, ccl.reduce_scatter
        self.all_reduce, self.all_to_all = ccl.all_reduce, ccl.all_to_all
        self.broadcast, self.gather, self.scatter = rooted.broadcast, rooted.gather, rooted.scatter
        self.reduce, self.send_receive = rooted.reduce, rooted.send_receive

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            if name.startswith("_"):
                raise AttributeError(name)
            every = chain.from_iterable(map(dir, (type(self), *PARTS)))
            names = sorted(each for each in {*every} if not each.startswith("_"))
            near = nearest(name, names)
            hint = f"did you mean {near!r}?" if near else "only chip ahbm has the names of torch;"
            chip = self._plan.resolved.topology.system.chip
            what = f"on chip {chip} the third argument of a host script has no {name!r}"
            raise NoSuchCall(f"{what}; {hint} the argument has {', '.join(names)}")

    @property
    def params(self) -> ChipParams:
        """The parameters of the chip."""
        found: ChipParams = self._plan.params
        return found

    @property
    def cluster(self) -> Cluster:
        """The chips of the system: locations, the mesh, and which chips a host reaches over PCIe."""
        return Cluster(self._plan)

    # --- tiles and links ------------------------------------------------------------------------------------------

    @property
    def workers(self) -> list[Core]:
        """The Tensix tiles, row by row, in coordinates of NoC 0."""
        return list(self._plan.floor_plan.workers)

    @property
    def dram_cores(self) -> list[Core]:
        """The tile of each DRAM channel."""
        return list(self._plan.floor_plan.dram)

    def get_active_ethernet_cores(self, skip_reserved: bool = True) -> list[Core]:
        """Return the Ethernet cores that have a link, by channel. ``skip_reserved``: omit the dispatcher's cores."""
        ranks = {link.far_sip for link in self._plan.links[self.rank].values()}
        channels = [self._plan.links_to(self.rank, rank, not skip_reserved) for rank in ranks]
        return [self._plan.floor_plan.ethernet[channel] for channel in sorted(chain(*channels))]

    def get_connected_ethernet_core(self, core: Core) -> tuple[int, Core]:
        """Return the chip and the core at the other end of an Ethernet core's link.

        Raises:
            KernelMisuse: for a core without a link.
        """
        cores = self._plan.floor_plan.ethernet
        link = self._plan.links[self.rank].get(cores.index(core)) if core in cores else None
        if link is None:
            raise KernelMisuse(f"no link leads from core {core} of SIP {self.rank}")
        return link.far_sip, cores[link.far_channel]

    def ethernet_cores_to(self, rank: Within, skip_reserved: bool = True) -> list[Core]:
        """Return the Ethernet cores whose links lead to chip ``rank``. The link of entry ``i`` ends at entry ``i`` of
        the list that chip ``rank`` gets for this chip.

        Raises:
            KernelMisuse: for an unknown rank.
        """
        whole("rank", rank, 0, self.world_size - 1)
        cores = self._plan.floor_plan.ethernet
        return [cores[channel] for channel in self._plan.links_to(self.rank, rank, not skip_reserved)]

    def channel_of(self, core: Core) -> int:
        """Return the channel of an Ethernet core.

        Raises:
            KernelMisuse: if the tile is not an Ethernet core.
        """
        self._check_kind(core, "has no channel; give an Ethernet core", Kind.ETHERNET)
        return int(self._plan.floor_plan.ethernet.index(core))

    def noc_hops(self, noc: int, src: Core, dst: Core) -> int:
        """Return the number of hops of a NoC from one tile to another."""
        return int(self._plan.graph.hops(noc, src, dst))

    def nearer_noc(self, src: Core, dst: Core) -> int:
        """Return the NoC with the shorter path from one tile to another."""
        return int(self._plan.graph.nearer(src, dst))

    def drain_ns(self, core: Core, nbytes: int) -> float:
        """Return the time in ns of ``nbytes`` at the bandwidth of an Ethernet core's link, without framing."""
        link = self._plan.links[self.rank][self.channel_of(core)]
        return float(drain_ps(nbytes, self._plan.system.link_kinds[link.number].bandwidth_bps) / PS_PER_NS)

    def l1_base(self, core: Core) -> int:
        """Return the first address of a tile's L1 that programs may use.

        Raises:
            KernelMisuse: for a tile without L1.
        """
        params = self._plan.params
        kind = self._check_kind(core, "has no L1; Tensix and Ethernet tiles do", *WITH_L1)
        of_kind = params.ethernet if kind is Kind.ETHERNET else params.tensix
        return int(of_kind.kernel_base) + SEMAPHORE_AREA

    # --- memory ---------------------------------------------------------------------------------------------------

    def set_word(self, core: Core, address: Natural, value: Within) -> None:
        """Set a 32-bit word of a tile, such as a semaphore before a program starts."""
        self.write(core, address, whole("value", value, 0, MOST_OF_WORD).to_bytes(ATOMIC_BYTES, "little"))

    def write(self, core: Core, address: Natural, data: bytes) -> None:
        """Write bytes to the memory of a tile."""
        self._chip.log.host_wrote(core, address, data)
        self._chip.tiles.memory(core).write(address, data, self._chip.session.engine.now_ps, "the host")

    def read(self, core: Core, address: Natural, nbytes: Natural) -> bytes:
        """Read bytes from the memory of a tile."""
        data: bytes = self._chip.tiles.memory(core).read(address, nbytes)
        return data

    def declare_result(self, core: Core, address: Natural, nbytes: Natural, name: str = "") -> None:
        """Declare bytes of a tile as a result at the end of the run. ``ahbm-races`` compares the declared results or,
        without declarations, the memory of programs in workers and DRAM.

        Raises:
            KernelMisuse: if another result has this name.
        """
        if not isinstance(name, str):
            raise KernelMisuse(f"name={name!r}: give a text")
        self._chip.declared.declare(name, core, self._chip.tiles.memory(core), address, nbytes)

    # --- programs -------------------------------------------------------------------------------------------------

    def create_program(self) -> Program:
        """Make a program without kernels."""
        return Program()

    def create_kernel(
        self,
        program: Program,
        kernel: Callable[..., Any],
        core: Core,
        config: programs.Config | None = None,
        args: tuple[Any, ...] = (),
        is_server: bool = False,
    ) -> None:
        """Add ``kernel(*args, dataflow)`` on a tile to a program. The default ``config`` is processor 0 and NoC 0.

        Raises:
            KernelMisuse: if the tile runs no kernels, ``config`` does not fit the tile, or the dispatcher has the tile.
        """
        if makes_generator(kernel):
            what = f"kernel {kernel.__name__} has a yield or is async, so a call would not run it"
            raise KernelMisuse(f"{what}; calls of a kernel block by themselves")
        if problem := reason_not_callable(kernel, len(args) + 1):
            raise KernelMisuse(f"kernel {problem}: the {len(args)} of args and the dataflow")
        kind = self._check_kind(core, "runs no kernels; Tensix and Ethernet tiles do", *WITH_L1)
        if kind is Kind.ETHERNET:
            self._check_not_reserved(kernel.__name__, core)
        if config is None:
            config = programs.EthernetConfig() if kind is Kind.ETHERNET else programs.DataMovementConfig()
        if (kind is Kind.ETHERNET) is not isinstance(config, programs.EthernetConfig):
            raise KernelMisuse(f"{type(config).__name__} does not fit tile {core}, which is of kind {kind.value}")
        count = 1 if kind is Kind.ETHERNET else self._plan.params.tensix.processors
        if not 0 <= any_whole("processor", config.processor) < count or any_whole("noc", config.noc) not in NOCS:
            given = f"processor {config.processor} with NoC {config.noc}"
            raise KernelMisuse(f"tile {core}: no {given}; give a processor from 0 to {count - 1}, and NoC 0 or 1")
        program.add(KernelSpec(kernel, core, config, tuple(args), is_server))

    def create_semaphore(self, program: Program, core: Core, initial: Within = 0) -> int:
        """Allocate a semaphore of a tile, with the value ``initial`` when the program starts; return the address.

        Raises:
            KernelMisuse: if the tile has no room, or a word cannot hold ``initial``.
        """
        whole("initial", initial, 0, MOST_OF_WORD)
        end = self.l1_base(core)
        first = end - (SEMAPHORE_AREA // 2 if self._kind(core) is Kind.ETHERNET else SEMAPHORE_AREA)
        return program.add_semaphore(core, first, end, initial)

    def edm_builder(
        self,
        num_channels: int,
        page_bytes: int,
        buffer_sharing: str = "NOT_SHARED",
        termination: str = "MESSAGE_COUNT_REACHED",
        is_merged: bool = True,
    ) -> EriscDataMoverBuilder:
        """Make a builder of an ERISC data mover whose buffers have as many whole pages as the L1 of an Ethernet core
        allows. ``buffer_sharing``: ``NOT_SHARED``, a buffer for each channel; the guide's other modes are refused.
        ``termination``: ``MESSAGE_COUNT_REACHED`` or ``WORKER_INITIATED``. ``is_merged``: whether a payload and the
        word ``bytes_sent`` are sent in one command instead of two.

        Raises:
            KernelMisuse: for channels or pages that do not fit, an unknown termination, or a mode that is unknown or
                not simulated.
        """
        one_of("buffer_sharing", buffer_sharing, BufferSharingMode.__members__)
        if buffer_sharing != BufferSharingMode.NOT_SHARED.name:
            what = f"tt.edm_builder: buffer_sharing={buffer_sharing!r} is not simulated"
            raise KernelMisuse(f"{what}: each channel has its own buffer; give 'NOT_SHARED'")
        modes = TerminationMode.__members__
        one_of("termination", termination, modes)
        ethernet = self._plan.params.ethernet
        base = int(ethernet.kernel_base) + SEMAPHORE_AREA
        space = layout(base, ethernet.l1_KiB * KIB, num_channels, page_bytes, is_merged)
        links = self.get_active_ethernet_cores()
        params = self._plan.params.data_mover
        return EriscDataMoverBuilder(space, modes[termination], params, links, self._check_worker)

    def open_fabric(
        self,
        topology: str = "line",
        chips: Sequence[int] | None = None,
        num_links: Count | None = None,
        revision: str | None = None,
        payload_bytes: Within | None = None,
        columns: Natural = 0,
        spare_slots: Sequence[str] = ROLES,
    ) -> Fabric:
        """Open a fabric: start routers on the Ethernet cores of links between neighbours. Every chip of the fabric must
        do this. ``topology``: ``line``, ``ring``, ``mesh`` (of ``columns``), or ``neighbor``, a line whose routers do
        not forward. ``chips``: ranks in order. ``num_links``: parallel links, by default 1, or in revision 2024-11 as
        many as all neighbours have. ``revision``: protocol revision, by
        default the newest. ``payload_bytes``: largest payload. ``spare_slots``: roles of routers near a dateline
        (``dateline``, ``upstream``, ``adjacent``) whose idle channels give their slots to others. With ``upstream`` or
        ``adjacent``, no packet may make a whole turn of the ring.

        Raises:
            KernelMisuse: if an argument does not fit these chips.
        """
        params = self._plan.params.fabric
        names = list(params.revisions)
        revision = names[-1] if revision is None else one_of("revision", revision, names)
        nbytes = params.payload_bytes
        if payload_bytes is not None:
            nbytes = whole("payload_bytes", payload_bytes, 1, params.most_payload_bytes)
        order = range(self.world_size) if chips is None else ranks("chips", chips, self.world_size)
        places = Places(topology, order, columns)
        roles = some_of("spare_slots", spare_slots, ROLES)
        self._chip.wait_for_own_fabrics()
        if num_links is None:
            num_links = places.most_links(self._plan) if params.revisions[revision].is_first else 1
        self._chip.wait_for_data_movers(places.cores(self._plan, self.rank, num_links))
        base = int(self._plan.params.ethernet.kernel_base)  # a router's core runs no program with semaphores
        fabric = Fabric(self._chip, places, num_links, revision, nbytes, base, roles)
        self._chip.fabrics.append(fabric)
        return fabric

    # --- running --------------------------------------------------------------------------------------------------

    def enqueue_program(self, program: Program) -> None:
        """Start the kernels of a program once all kernels of earlier programs, except servers, have ended.

        Raises:
            KernelMisuse: for a kernel on a core that runs a router.
        """
        self._chip.enqueue(program)

    def finish(self) -> None:
        """Wait until all kernels except servers have ended."""
        self._chip.wait_for_kernels()

    def now_ns(self) -> float:
        """Return the simulated time in ns."""
        return float(self._chip.session.engine.now_ps / PS_PER_NS)

    def _check_not_reserved(self, kernel: str, core: Core) -> None:
        channel = self._plan.floor_plan.ethernet.index(core)
        if self._plan.is_reserved(self.rank, channel):
            what = f"kernel {kernel} is for core {core} (eth{channel}) of SIP {self.rank}"
            whose = "whose link is reserved for the dispatcher"
            raise KernelMisuse(f"{what}, {whose}; take a core of tt.get_active_ethernet_cores()")

    def _check_worker(self, core: Core) -> None:
        worker_tile(core, self._plan.floor_plan.workers)

    def _check_kind(self, core: Core, problem: str, *kinds: Kind) -> Kind:
        kind = self._kind(core)
        if kind not in kinds:
            raise KernelMisuse(f"tile {core} {problem}")
        assert kind is not None
        return kind

    def _kind(self, core: Core) -> Kind | None:
        kind: Kind | None = self._plan.floor_plan.kinds.get(core)
        return kind
