"""Schema of the config files, one frozen struct per section, and a record of the changed keys that a run reads.

Units are in the key names: ``_ns`` nanoseconds, ``_mm`` millimetres, ``_GBps`` 1e9 bytes per second, ``_bytes`` bytes,
``_KiB`` 2**10 bytes, ``_MiB`` 2**20 bytes. Values are in ``configs/*.yaml``, each with its source. Only optional keys
have defaults in the schema, most of them ``None`` or empty.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, NamedTuple, TypeVar, cast, get_type_hints

from msgspec import Meta, Struct, defstruct
from msgspec.structs import asdict, fields

Index = Annotated[int, Meta(ge=0, le=2047)]
PositiveInt = Annotated[int, Meta(ge=1, le=2**40)]
NonNegative = Annotated[float, Meta(ge=0, le=1e6)]


class Section(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Section of a config file: a mapping whose keys are exactly the fields.

    ``for_readers``: keys that inform people and have no effect on a run.
    """

    for_readers: ClassVar[tuple[str, ...]] = ()


def field_types(section: type[Section]) -> dict[str, Any]:
    """Return the type of each key of a section, in the order of its fields."""
    hints = get_type_hints(section, include_extras=True)
    return {key: hints[key] for key in section.__struct_fields__}


class NoParams(Section, frozen=True):
    """Empty parameters, for kinds that have none."""


# --- components.yaml: delays, bandwidths and sizes of parts -----------------------------------------


Positive = Annotated[float, Meta(ge=1e-9, le=1e9)]
"""Positive number, such as a bandwidth in GB/s: at least one byte per second."""
QueueDepth = Annotated[int, Meta(ge=1, le=65536)]
FlitBytes = Annotated[int, Meta(ge=2, le=4096)]
FlitOverhead = Annotated[int, Meta(ge=0, le=4095)]


class Wire(Section, frozen=True):
    """``wire``: the delay of every wire per millimetre."""

    ns_per_mm: NonNegative


class Node(Section, frozen=True):
    """Part on a route: the fixed delay of a transfer's head, and the bandwidth of the edges to and from the part."""

    overhead_ns: NonNegative
    bandwidth_GBps: Positive


class RouterCost(Node, frozen=True, omit_defaults=True):
    """``router``: a node with input buffers.

    ``buffer_packets``: depth per virtual channel at each input of every node on routes; no limit if ``null``.
    ``packet_bytes``: maximum bytes of a packet; a chunk if ``null``. Digests contain these keys only if given.
    """

    buffer_packets: Annotated[int, Meta(ge=1, le=65536)] | None = None
    packet_bytes: Annotated[int, Meta(ge=1, le=65536)] | None = None


class UciePort(Section, frozen=True):
    """``ucie_port``: the crossing between two cubes, half of it in each port (``sipsim.fabric.links.ucie``).

    ``flit_bytes``: size of a flit; payloads are sent without flits if ``null``.
    """

    fdi_to_fdi_ns: NonNegative
    bandwidth_GBps: Positive
    flit_bytes: FlitBytes | None
    flit_overhead_bytes: FlitOverhead


class IoPortCost(Node, frozen=True, omit_defaults=True):
    """``io_port``: a node with a receive buffer for its link.

    ``buffer_packets``: depth per virtual channel, in packets of ``router.packet_bytes``; no limit if ``null``.
    """

    buffer_packets: Annotated[int, Meta(ge=1, le=65536)] | None = None


class MemoryCost(Node, frozen=True, omit_defaults=True):
    """Memory at a port: a node with access times.

    ``kind``: the memory kind, whose struct checks ``params``; the latencies are fixed if ``null``. Digests contain
    these two keys only if given.
    """

    read_latency_ns: NonNegative
    write_latency_ns: NonNegative
    kind: str | None = None
    params: dict[str, Any] = {}


class TcmCost(Section, frozen=True, omit_defaults=True):
    """Memory of a PE: only access times, as the PE uses it without the fabric. Keys are as in ``MemoryCost``."""

    read_latency_ns: NonNegative
    write_latency_ns: NonNegative
    kind: str | None = None
    params: dict[str, Any] = {}


class TcmLayout(Section, frozen=True):
    """Regions of a TCM (ADR-0023 D20), in MiB from the bottom: kernel memory, IPCQ receive rings, scratch.

    ``handles_take_room``: whether handles use bytes of kernel memory, which they can fill.
    """

    kernel_MiB: Annotated[int, Meta(ge=1, le=1024)]
    ipcq_MiB: Annotated[int, Meta(ge=1, le=1024)]
    scratch_MiB: Annotated[int, Meta(ge=0, le=1024)]
    handles_take_room: bool


Outstanding = Annotated[int, Meta(ge=1, le=256)]


class PeDma(Node, frozen=True, omit_defaults=True):
    """``pe_dma``: a node with the sizes of its read commands and write acknowledgements.

    ``outstanding_loads``, ``outstanding_stores``: maximum number under way per kernel. Digests omit the defaults.
    """

    command_bytes: PositiveInt
    ack_bytes: PositiveInt
    outstanding_loads: Outstanding = 4
    outstanding_stores: Outstanding = 4


class PeMmu(Section, frozen=True):
    """``pe_mmu``: pages, entries of the TLB, and the time of a page walk; see ``sipsim.chips.ahbm.memory.mmu``.

    ``virtual_rings``: whether queue pairs also have the virtual address of the peer's ring, so that sends use the TLB.
    """

    page_KiB: Annotated[int, Meta(ge=4, le=2**20)]
    tlb_entries: Annotated[int, Meta(ge=1, le=65536)]
    walk_ns: NonNegative
    virtual_rings: bool


class PeIpcq(Section, frozen=True):
    """``pe_ipcq``: the overhead per send and per credit."""

    overhead_ns: NonNegative


class PeCpu(Section, frozen=True):
    """``pe_cpu``: times of the core that runs a kernel: per command, per wake-up, and per poll."""

    issue_ns: NonNegative
    wakeup_ns: NonNegative
    poll_ns: NonNegative


class PeScheduler(Section, frozen=True):
    """``pe_scheduler``: depth of each engine's queue; if ``null``, every command starts when it is issued."""

    queue_depth: QueueDepth | None


class PeMath(Section, frozen=True):
    """``pe_math``: start-up time of an operation, and bandwidth for the bytes of its widest operand or result.

    ``special_factor``: the factor by which special functions take longer for the same bytes.
    """

    overhead_ns: NonNegative
    bandwidth_GBps: Positive
    special_factor: Annotated[float, Meta(ge=1, le=1024)]


class PeGemm(Section, frozen=True):
    """``pe_gemm``: a systolic array and its buffers; see ``sipsim.chips.ahbm.gemm``.

    ``accumulators``: folds that take turns. ``buffer_KiB``: bytes of the TCM for a command's operands and outputs,
    which are moved in pieces; ``chunk_bytes``: least bytes of a row of a piece. ``outstanding_loads``,
    ``outstanding_stores``: maximum number of pieces under way. ``shared_KiB``: while the kernel has loads or stores
    under way, a new load is at most this far behind the first.
    """

    rows: Annotated[int, Meta(ge=1, le=1024)]
    columns: Annotated[int, Meta(ge=1, le=1024)]
    clock_GHz: Annotated[float, Meta(ge=0.001, le=100)]
    dataflow: Literal["os", "ws", "is"]
    accumulators: Annotated[int, Meta(ge=1, le=256)]
    buffer_KiB: Annotated[int, Meta(ge=1, le=2**20)]
    chunk_bytes: Annotated[int, Meta(ge=1, le=65536)]
    outstanding_loads: Outstanding
    shared_KiB: Annotated[int, Meta(ge=1, le=2**20)]
    outstanding_stores: Outstanding


class PeFetchStore(Section, frozen=True):
    """``pe_fetch_store``: start-up time of a move between the TCM and the engines; a move uses the TCM's ports."""

    overhead_ns: NonNegative


class IoCpu(Section, frozen=True):
    """``io_cpu``: a node at the edge of the SIP, at the first router of ``cube``.

    ``launch_ns``, ``gather_ns``: time per launch and per answer of a cube, which it processes in order.
    """

    cube: Index
    overhead_ns: NonNegative
    bandwidth_GBps: Positive
    launch_ns: NonNegative
    gather_ns: NonNegative


class MCpu(Node, frozen=True):
    """``m_cpu``: a node of every cube, at its first router.

    ``dispatch_ns``, ``gather_ns``: time per message to a PE or M_CPU.DMA and per answer, which it processes in order.
    ``dma_engines``: engines of its M_CPU.DMA.
    """

    dispatch_ns: NonNegative
    gather_ns: NonNegative
    dma_engines: PositiveInt


class Launch(Section, frozen=True):
    """``launch``: the path of a launch from the host to the PEs and back.

    ``host_latency_ns``: time from the host to IO_CPU, and back; ``bandwidth_GBps``: bandwidth of this link, each
    way. ``cube_bytes``, ``pe_bytes``, ``done_bytes``: sizes of a message to an M_CPU, to a PE, and of an answer;
    ``entry_bytes``: size of a page-table entry in a message. ``start_margin_ns``: time from IO_CPU's sending to the
    start time; the longest time that a message needs without other traffic if ``null``. ``start_skew_ns``: by rank, the
    delay of launches at the host; delays of other ranks are drawn from the seed, at most ``max_start_skew_ns``.
    """

    host_latency_ns: NonNegative
    bandwidth_GBps: Positive
    cube_bytes: PositiveInt
    pe_bytes: PositiveInt
    done_bytes: PositiveInt
    entry_bytes: PositiveInt
    start_margin_ns: NonNegative | None
    start_skew_ns: dict[str, NonNegative]
    max_start_skew_ns: NonNegative
    start_skew_seed: Annotated[int, Meta(ge=0, le=2**63 - 1)]


HostCopies = Literal["dma", "free"]


class ComponentsFile(Section, frozen=True, omit_defaults=True):
    """Keys of ``components.yaml``. ``parts``: by node kind, the parameters of users' parts, which have no section.

    PEs have no MMU if ``pe_mmu`` is ``null``. Kernels start when the host launches them if ``launch`` is ``null``. The
    host's copies and maps take time if ``host_copies`` is ``dma`` and there is a ``launch``.
    """

    wire: Wire
    router: RouterCost
    ucie_port: UciePort
    io_port: IoPortCost
    hbm: MemoryCost
    sram: MemoryCost
    tcm: TcmCost
    tcm_layout: TcmLayout
    pe_dma: PeDma
    pe_ipcq: PeIpcq
    pe_cpu: PeCpu
    pe_scheduler: PeScheduler
    pe_math: PeMath
    pe_gemm: PeGemm
    pe_fetch_store: PeFetchStore
    launch: Launch | None = None
    io_cpu: IoCpu | None = None
    m_cpu: MCpu | None = None
    host_copies: HostCopies = "free"
    parts: dict[str, dict[str, Any]] = {}
    pe_mmu: PeMmu | None = None


# --- record of the changed keys that a run reads ------------------------------------------------------


Path = tuple[str, ...]
Noted = tuple[tuple[str, tuple[Path, ...]], ...]
AnySection = TypeVar("AnySection", bound=Section)
_NOTED, _READS = "noted_reads", "reads_of_run"


class Change(NamedTuple):
    """Change of a value by a user: ``default`` is the old value, ``origin`` the file or flag that changed it."""

    path: Path
    value: Any
    default: Any
    origin: str


class Reads:
    """Record of which changed values (``paths``, ``changes``) a run has read (``seen``) while ``is_counting``.

    A changed key that the run never reads has no effect. A section with changed keys is replaced by a section whose
    class notes reads of these keys; other sections stay as fast as before. Reads that only check, describe or hash a
    config do not count. A part needs no code for this if it reads a key where the key takes effect: when the part is
    made, at its first use, or later.

    ``for_readers``: the changed keys that inform people and have no effect on a run.
    """

    def __init__(self, paths: Sequence[Path] = (), changes: Sequence[Change] = ()) -> None:
        self.paths = tuple(paths)
        self.changes = tuple(changes)
        self.seen: set[Path] = set()
        self.for_readers: set[Path] = set()
        self.is_counting = False
        self._classes: dict[tuple[type[Section], Noted], type[Section]] = {}

    @contextmanager
    def apart(self) -> Iterator[None]:
        """Return a context manager during which reads do not count."""
        before, self.is_counting = self.is_counting, False
        try:
            yield
        finally:
            self.is_counting = before

    def watched(self, section: AnySection, where: Path = ()) -> AnySection:
        """Return a copy of the section at path ``where`` that notes reads of changed keys."""
        below = [(*where, key) for key in section.__struct_fields__]
        inside = [path for path in self.paths if path[: len(where) + 1] in below]
        watched: AnySection = self._watched(section, inside, len(where))
        return watched

    def _watched(self, value: Any, paths: list[Path], depth: int) -> Any:
        by_key: dict[str, list[Path]] = {}
        values, noted = asdict(value) if isinstance(value, Section) else dict(value), {}
        for path in paths:
            if path[depth] in values:
                by_key.setdefault(path[depth], []).append(path)
        for key, key_paths in by_key.items():
            if isinstance(value, Section) and key in value.for_readers:
                self.for_readers.update(key_paths)
            elif _holds_sections(values[key]) and all(len(path) > depth + 1 for path in key_paths):
                values[key] = self._watched(values[key], key_paths, depth + 1)
            else:
                noted[key] = tuple(key_paths)
        return self.noting(type(value), noted)(**values) if isinstance(value, Section) else values

    def noting(self, kind: type[AnySection], noted: Mapping[str, tuple[Path, ...]]) -> type[AnySection]:
        """Return the subclass of ``kind`` that notes reads of the keys in ``noted``, except reads by encoders.

        ``noted``: by key, the paths of changed values at the key; a mapping may contain several.
        """
        if not noted:
            return kind
        cache_key = kind, tuple(noted.items())
        if cache_key not in self._classes:
            properties = {key: self._note(kind, key, noted[key]) for key in noted}
            self._classes[cache_key] = subclass(kind, {_NOTED: noted, _READS: self, **properties})
        return cast("type[AnySection]", self._classes[cache_key])

    def _note(self, kind: type[Section], key: str, paths: tuple[Path, ...]) -> property:
        """Return a property that reads a key and notes the read of ``paths``."""
        field = getattr(kind, key)

        def read(section: Section) -> Any:
            if self.is_counting:
                self.seen.update(paths)
            return field.__get__(section)

        return property(read)


def merged(kind: type[AnySection], owners: Mapping[str, Section]) -> AnySection:
    """Return a section with the value of each key from ``owners[key]``; its read counts as a read of that section."""
    values_of = {id(owner): asdict(owner) for owner in owners.values()}
    values = {key: values_of[id(owner)][key] for key, owner in owners.items()}
    noting = {key: owner for key, owner in owners.items() if key in getattr(owner, _NOTED, ())}
    if not noting:
        return kind(**values)
    reads: Reads = getattr(next(iter(noting.values())), _READS)
    return reads.noting(kind, {key: getattr(owner, _NOTED)[key] for key, owner in noting.items()})(**values)


def _holds_sections(value: Any) -> bool:
    return isinstance(value, Section) or (isinstance(value, dict) and any(map(_holds_sections, value.values())))


def subclass(kind: type[AnySection], attributes: Mapping[str, Any]) -> type[AnySection]:
    """Return a subclass with the same fields and name, and further ``attributes``."""
    meta: Any = type(kind)
    new_class: type[AnySection] = meta(kind.__name__, (kind,), {"__module__": kind.__module__, **attributes})
    return new_class


# --- types of keys in the sections below --------------------------------------------------------------


Count = Annotated[int, Meta(ge=1, le=2048)]
BufferKind = Literal["tcm", "hbm", "sram"]
Backpressure = Literal["sleep", "poll"]
Latch = Literal["copy", "in_place"]
CreditReturnMode = Literal["fast_path", "fabric", "piggyback", "auto"]
HeadUpdate = Literal["piggyback", "doorbell"]
PollInterval = Annotated[float, Meta(ge=0.001, le=1e6)]
SlotCount = Annotated[int, Meta(ge=1, le=65536)]
SlotSize = Annotated[int, Meta(ge=1, le=2**24)]
ChunkSize = Annotated[int, Meta(ge=1, le=65536)]
ChunkHeader = Annotated[int, Meta(ge=0, le=4096)]
CreditSize = Annotated[int, Meta(ge=1, le=4096)]
Weight = Annotated[int, Meta(ge=0, le=100)]
NumLinks = Annotated[int, Meta(ge=1, le=6)]
OutageTime = Annotated[float, Meta(ge=1e-6, le=1e9)]
RankPer = Literal["pe", "cube", "sip"]
AllReduce = Literal["elementwise", "intercube"]
Ranks = Annotated[int, Meta(ge=1, le=2**25)]


# --- topology.yaml: the hardware -------------------------------------------------------------------


class Mesh(Section, frozen=True):
    """Grid of ``w`` columns (W to E) and ``h`` rows (N to S)."""

    w: Annotated[int, Meta(ge=1, le=64)]
    h: Annotated[int, Meta(ge=1, le=64)]


class CustomLink(Section, frozen=True):
    """Edge of ``topology: custom``: both directions between two SIPs' ports. ``link``: the preset of this edge."""

    a: Index
    a_port: str
    b: Index
    b_port: str
    link: str | None = None


class LinkOutage(Section, frozen=True):
    """Outage of the link at a port, such as ``0.E``, in both directions; the link resumes ``for_us`` later."""

    port: str
    at_us: OutageTime
    for_us: OutageTime


class Sips(Section, frozen=True):
    """``system.sips``: the number of SIPs, their topology, and the link preset of ``links.yaml``.

    ``links``: presets of single links, both directions, by a port at one end: ``{"0.E": ethernet_100g}``.
    ``num_links``: links between two neighbours, for topologies that have a choice; one if ``null``. ``outages``:
    outages of links, each named by a port at one end. ``locations``: of topology ``custom``, ``[x, y, rack, shelf]`` of
    each SIP; ``remote``: of topology ``custom``, the SIPs that no host reaches over PCIe.
    """

    count: Count
    topology: str
    link: str
    shape: tuple[Count, Count] | None = None
    custom_links: tuple[CustomLink, ...] = ()
    links: dict[str, str] = {}
    num_links: NumLinks | None = None
    outages: tuple[LinkOutage, ...] = ()
    locations: tuple[tuple[Index, Index, Index, Index], ...] = ()
    remote: tuple[Index, ...] = ()


class SystemSection(Section, frozen=True):
    """``system``: the chip kind of all SIPs, and the SIPs. ``chip_params``: parameters that the chip kind's struct
    checks; empty for ``ahbm``, which has separate sections.
    """

    chip: str
    sips: Sips
    chip_params: dict[str, Any] = {}


class SipPorts(Section, frozen=True):
    """Cube of each IO port of a SIP; the middle cube of that side of the mesh if ``null``."""

    E: Index | None = None
    W: Index | None = None
    N: Index | None = None
    S: Index | None = None


class SipSection(Section, frozen=True):
    """``sip``: the mesh of cubes of one SIP, and the positions of its ports."""

    cube_mesh: Mesh
    cube_gap_mm: NonNegative
    ports: SipPorts
    port_distance_mm: NonNegative


class CubeNoc(Section, frozen=True):
    """Mesh of routers in a cube, numbered row by row; PE ``i`` is at router ``i``. Distances are lengths of wire."""

    routers: Mesh
    router_pitch_mm: NonNegative
    pe_distance_mm: NonNegative
    hbm_distance_mm: NonNegative
    sram_distance_mm: NonNegative
    ucie_distance_mm: NonNegative


class CubeSection(Section, frozen=True):
    """``cube``: the contents of one cube; HBM is counted per PE, SRAM per cube."""

    pes: Annotated[int, Meta(ge=1, le=64)]
    noc: CubeNoc
    hbm_MiB_per_pe: Annotated[int, Meta(ge=1, le=16384)]
    sram_MiB: Annotated[int, Meta(ge=1, le=1024)]


class TopologyFile(Section, frozen=True):
    """Keys of ``topology.yaml``."""

    system: SystemSection
    sip: SipSection
    cube: CubeSection


# --- ccl.yaml: collectives --------------------------------------------------------------------------


class IpcqKnobs(Section, frozen=True):
    """IPCQ settings (ADR-0023 D11); an algorithm's entry overrides those of ``defaults`` key by key."""

    buffer_kind: BufferKind
    backpressure: Backpressure
    poll_interval_ns: PollInterval
    poll_interval_max_ns: PollInterval | None
    latch: Latch | None
    head_update: HeadUpdate
    credit_return_mode: CreditReturnMode
    piggyback_wait_ns: NonNegative
    n_slots: SlotCount
    slot_size: SlotSize
    virtual_channels: bool
    vc_chunk_size: ChunkSize
    vc_chunk_header_bytes: ChunkHeader
    vc_compute_weight: Weight
    vc_comm_weight: Weight
    credit_virtual_channel: bool
    ipcq_credit_size_bytes: CreditSize
    strict_validation: bool
    hw_strict: bool

    @property
    def has_doorbells(self) -> bool:
        """Whether a doorbell behind a message writes the new head (ADR-0023 D23), not the message."""
        return self.head_update == "doorbell"


class CclDefaults(IpcqKnobs, frozen=True):
    """``defaults``: the algorithm that runs, and the default settings of all algorithms.

    ``all_reduce``: the collective by which scripts' ``all_reduce`` sums a tensor with one row per cube.
    """

    algorithm: str
    all_reduce: AllReduce
    workers: Annotated[int, Meta(ge=1, le=4096)]
    worker_bytes: Annotated[int, Meta(ge=1, le=2**40)]
    group_KiB: Annotated[int, Meta(ge=1, le=2**20)]
    world_size: Ranks | None = None


class AlgorithmOwn(Section, frozen=True):
    """Keys that only an entry of ``algorithms`` has: the module and its wiring.

    ``topology``: the neighbour table; ``world_size``: the number of ranks of the wiring, one per ``rank_per``;
    ``opposites``: pairs of opposite directions besides E/W, N/S and their ``global_`` forms.
    """

    module: str
    topology: str
    n_elem: PositiveInt | None = None
    root_cube: Index | Literal["auto"] | None = None
    rank_per: RankPer | None = None
    world_size: Ranks | None = None
    opposites: dict[str, str] = {}


if TYPE_CHECKING:
    AlgorithmEntry = AlgorithmOwn
else:
    AlgorithmEntry = defstruct(
        "AlgorithmEntry",
        [(name, kind | None, None) for name, kind in field_types(IpcqKnobs).items()],
        bases=(AlgorithmOwn,),
        namespace={
            "__doc__": "Entry of ``algorithms``: the keys of ``AlgorithmOwn``, and overrides of ``defaults``.",
        },
        module=__name__,
        frozen=True,
        forbid_unknown_fields=True,
        kw_only=True,
    )


OF_MODULE = frozenset(field.name for field in fields(AlgorithmEntry) if not field.required)
"""Optional keys of an entry of ``algorithms``; their meaning depends on the entry's module."""


class CclFile(Section, frozen=True):
    """Keys of ``ccl.yaml``."""

    defaults: CclDefaults
    algorithms: dict[str, AlgorithmEntry]


# --- links.yaml: presets of link kinds --------------------------------------------------------------


class LinkPreset(Section, frozen=True):
    """Named parameter set of a link kind; the kind's struct checks ``params``."""

    kind: str
    source: str
    params: dict[str, Any]

    for_readers: ClassVar[tuple[str, ...]] = ("source",)


class LinksFile(Section, frozen=True):
    """Keys of ``links.yaml``."""

    links: dict[str, LinkPreset]


class Resolved(Section, frozen=True):
    """Config of a run: all four files after overrides. Every process has the same config; the digest covers it.

    ``reads``: the record of the user's changes that the run has read.
    """

    topology: TopologyFile
    components: ComponentsFile
    ccl: CclFile
    links: LinksFile

    reads: ClassVar[Reads] = Reads()

    def watched(self, paths: Sequence[Path], changes: Sequence[Change] = ()) -> "Resolved":
        """Return a copy of this config with a new record of reads of the values at ``paths``."""
        reads = Reads(paths, changes)
        kind = subclass(Resolved, {"reads": reads})
        return kind(**{stem: reads.watched(section) for stem, section in asdict(self).items()})
