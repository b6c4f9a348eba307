"""Schema of the config files, one frozen struct per section, and the record of which changed keys a run reads.

Units are in the key names: ``_ns`` nanoseconds, ``_mm`` millimetres, ``_GBps`` 1e9 bytes per second, ``_bytes`` bytes,
``_KiB`` 2**10 bytes, ``_MiB`` 2**20 bytes. Values are in ``configs/*.yaml``, each with its source. The schema itself
has no defaults, except ``None`` and empty for optional keys.
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
    """Mapping in a config file whose keys are exactly the fields.

    ``for_readers``: keys that inform people, and have no effect on a run.
    """

    for_readers: ClassVar[tuple[str, ...]] = ()


def field_types(section: type[Section]) -> dict[str, Any]:
    """Return the type of each key, in order."""
    hints = get_type_hints(section, include_extras=True)
    return {key: hints[key] for key in section.__struct_fields__}


class NoParams(Section, frozen=True):
    """Parameters of a kind without parameters."""


# --- components.yaml: what each part costs ----------------------------------------------------------


Positive = Annotated[float, Meta(ge=1e-9, le=1e9)]
"""A positive number, such as a bandwidth in GB/s: at least one byte per second."""
QueueDepth = Annotated[int, Meta(ge=1, le=65536)]
FlitBytes = Annotated[int, Meta(ge=2, le=4096)]
FlitOverhead = Annotated[int, Meta(ge=0, le=4095)]


class Wire(Section, frozen=True):
    """``wire``: delay of every wire, per millimetre."""

    ns_per_mm: NonNegative


class Node(Section, frozen=True):
    """Part on a route: a fixed cost for a transfer's head, and the bandwidth of the edges into and out of it."""

    overhead_ns: NonNegative
    bandwidth_GBps: Positive


class RouterCost(Node, frozen=True, omit_defaults=True):
    """``router``: a node with input buffers.

    ``buffer_packets``: per virtual channel at each input of every node on routes, ``null``: no limit. ``packet_bytes``:
    the most bytes of a packet, ``null``: a chunk of the arbitration. Digests contain these keys only if given.
    """

    buffer_packets: Annotated[int, Meta(ge=1, le=65536)] | None = None
    packet_bytes: Annotated[int, Meta(ge=1, le=65536)] | None = None


class UciePort(Section, frozen=True):
    """``ucie_port``: the crossing between two cubes; each of its ports takes half (``sipsim.fabric.links.ucie``).

    ``flit_bytes``: null: payloads without flits.
    """

    fdi_to_fdi_ns: NonNegative
    bandwidth_GBps: Positive
    flit_bytes: FlitBytes | None
    flit_overhead_bytes: FlitOverhead


class IoPortCost(Node, frozen=True, omit_defaults=True):
    """``io_port``: a node with a receive buffer for its link.

    ``buffer_packets``: per virtual channel, in packets of the routers' buffers, ``null``: no limit.
    """

    buffer_packets: Annotated[int, Meta(ge=1, le=65536)] | None = None


class MemoryCost(Node, frozen=True, omit_defaults=True):
    """Memory at a port: a node with access times.

    ``kind`` is a memory kind, ``null``: fixed latencies; ``params`` is checked by that kind's own struct. Digests
    contain these keys only if given.
    """

    read_latency_ns: NonNegative
    write_latency_ns: NonNegative
    kind: str | None = None
    params: dict[str, Any] = {}


class TcmCost(Section, frozen=True, omit_defaults=True):
    """Memory of a PE: access times only, since the PE reaches it without the fabric. See ``MemoryCost``."""

    read_latency_ns: NonNegative
    write_latency_ns: NonNegative
    kind: str | None = None
    params: dict[str, Any] = {}


class TcmLayout(Section, frozen=True):
    """Regions of a TCM (ADR-0023 D20), in MiB from the bottom: kernel memory, IPCQ receive rings, scratch.

    ``handles_take_room``: the handles of a kernel are in kernel memory and may fill it.
    """

    kernel_MiB: Annotated[int, Meta(ge=1, le=1024)]
    ipcq_MiB: Annotated[int, Meta(ge=1, le=1024)]
    scratch_MiB: Annotated[int, Meta(ge=0, le=1024)]
    handles_take_room: bool


Outstanding = Annotated[int, Meta(ge=1, le=256)]


class PeDma(Node, frozen=True, omit_defaults=True):
    """``pe_dma``: a node with the sizes of its read commands and write acknowledgements.

    At most ``outstanding_loads`` and ``outstanding_stores`` of a kernel are under way. Digests omit their defaults.
    """

    command_bytes: PositiveInt
    ack_bytes: PositiveInt
    outstanding_loads: Outstanding = 4
    outstanding_stores: Outstanding = 4


class PeMmu(Section, frozen=True):
    """``pe_mmu``: pages, entries of the TLB, and the time of a page walk; see ``sipsim.chips.ahbm.memory.mmu``.

    ``virtual_rings``: queue pairs also have the virtual address of the peer's ring, and sends use the TLB.
    """

    page_KiB: Annotated[int, Meta(ge=4, le=2**20)]
    tlb_entries: Annotated[int, Meta(ge=1, le=65536)]
    walk_ns: NonNegative
    virtual_rings: bool


class PeIpcq(Section, frozen=True):
    """``pe_ipcq``: its overhead per send and per credit."""

    overhead_ns: NonNegative


class PeCpu(Section, frozen=True):
    """``pe_cpu``: times of the core that runs a kernel: per command, per wake-up, and per poll."""

    issue_ns: NonNegative
    wakeup_ns: NonNegative
    poll_ns: NonNegative


class PeScheduler(Section, frozen=True):
    """``pe_scheduler``: places in the queue of each engine; ``null``: no queue, every command starts when issued."""

    queue_depth: QueueDepth | None


class PeMath(Section, frozen=True):
    """``pe_math``: start-up of an operation, and bandwidth over its widest operand or result.

    ``special_factor``: the factor by which special functions take longer for the same bytes.
    """

    overhead_ns: NonNegative
    bandwidth_GBps: Positive
    special_factor: Annotated[float, Meta(ge=1, le=1024)]


class PeGemm(Section, frozen=True):
    """``pe_gemm``: a systolic array and its buffers; see ``sipsim.chips.ahbm.gemm``.

    ``accumulators``: folds that take turns. ``buffer_KiB``: of the TCM, for a command's operands and outputs;
    ``chunk_bytes``: least bytes of a row of their pieces. At most ``outstanding_loads`` and ``outstanding_stores`` of
    these pieces are under way at a time; beside loads and stores of the kernel, a new load is at most ``shared_KiB``
    behind the first.
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
    """``pe_fetch_store``: start-up of a move between the TCM and the engines, which takes the TCM's ports."""

    overhead_ns: NonNegative


class IoCpu(Section, frozen=True):
    """``io_cpu``: a node at the edge of the SIP, at the first router of ``cube``.

    It takes ``launch_ns`` per launch and ``gather_ns`` per answer of a cube, one after the other.
    """

    cube: Index
    overhead_ns: NonNegative
    bandwidth_GBps: Positive
    launch_ns: NonNegative
    gather_ns: NonNegative


class MCpu(Node, frozen=True):
    """``m_cpu``: a node of every cube, at its first router.

    It takes ``dispatch_ns`` per message to a PE and ``gather_ns`` per answer of a PE, one after the other.
    """

    dispatch_ns: NonNegative
    gather_ns: NonNegative


class Launch(Section, frozen=True):
    """``launch``: the path of a launch from the host to the PEs and back.

    ``host_latency_ns``: from the host to IO_CPU, and the same back. The sizes are of a message to an M_CPU, to a PE,
    and of an answer. ``start_margin_ns``: from IO_CPU's stamp to the start time in it; ``null``: the most time that the
    messages need without other traffic. ``start_skew_ns``: by rank, the delay of its launches at the host; other ranks
    have a delay drawn from the seed, at most ``max_start_skew_ns``.
    """

    host_latency_ns: NonNegative
    cube_bytes: PositiveInt
    pe_bytes: PositiveInt
    done_bytes: PositiveInt
    start_margin_ns: NonNegative | None
    start_skew_ns: dict[str, NonNegative]
    max_start_skew_ns: NonNegative
    start_skew_seed: Annotated[int, Meta(ge=0, le=2**63 - 1)]


class ComponentsFile(Section, frozen=True, omit_defaults=True):
    """Keys of ``components.yaml``. ``parts``: by node kind, the parameters of a part without a section of its own.

    ``pe_mmu``: ``null``: none. With ``launch: null``, kernels start when the host launches them.
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
    parts: dict[str, dict[str, Any]] = {}
    pe_mmu: PeMmu | None = None


# --- which of the keys that a user has changed are read -----------------------------------------------


Path = tuple[str, ...]
Noted = tuple[tuple[str, tuple[Path, ...]], ...]
AnySection = TypeVar("AnySection", bound=Section)
_NOTED, _READS = "noted_reads", "reads_of_run"


class Change(NamedTuple):
    """Value that a user has changed: from ``default``, by the file or flag ``origin``."""

    path: Path
    value: Any
    default: Any
    origin: str


class Reads:
    """Record of the values at ``paths`` that were ``seen`` so far, while ``is_counting``. ``changes``: the values.

    A key that nothing reads has no effect. A section with changed keys is replaced by one of a class that notes reads
    of just these; all others are as fast as before. Reads that only check, describe or hash a config do not count. A
    part needs no code for this, as long as it reads a key where it takes effect: when the part is made, at its first
    use, or later.

    ``for_readers``: the changed keys that inform people, and have no effect on a run.
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
        """Context in which reads do not count."""
        before, self.is_counting = self.is_counting, False
        try:
            yield
        finally:
            self.is_counting = before

    def watched(self, section: AnySection, where: Path = ()) -> AnySection:
        """Return the section at path ``where`` as one that notes reads."""
        below = [(*where, key) for key in section.__struct_fields__]
        inside = [path for path in self.paths if path[: len(where) + 1] in below]
        made: AnySection = self._watched(section, inside, len(where))
        return made

    def _watched(self, value: Any, paths: list[Path], depth: int) -> Any:
        by_key: dict[str, list[Path]] = {}
        values, noted = asdict(value) if isinstance(value, Section) else dict(value), {}
        for path in paths:
            if path[depth] in values:
                by_key.setdefault(path[depth], []).append(path)
        for key, some in by_key.items():
            if isinstance(value, Section) and key in value.for_readers:
                self.for_readers.update(some)
            elif _holds_sections(values[key]) and all(len(path) > depth + 1 for path in some):
                values[key] = self._watched(values[key], some, depth + 1)
            else:
                noted[key] = tuple(some)
        return self.noting(type(value), noted)(**values) if isinstance(value, Section) else values

    def noting(self, kind: type[AnySection], noted: Mapping[str, tuple[Path, ...]]) -> type[AnySection]:
        """Return the class of sections that note reads of these keys, always the same; encoders read none.

        ``noted``: by key, the paths of changed values there; a value with keys may have several.
        """
        if not noted:
            return kind
        known = kind, tuple(noted.items())
        if known not in self._classes:
            own = {_NOTED: noted, _READS: self, **{key: self._note(kind, key, noted[key]) for key in noted}}
            self._classes[known] = subclass(kind, own)
        return cast("type[AnySection]", self._classes[known])

    def _note(self, kind: type[Section], key: str, paths: tuple[Path, ...]) -> property:
        field = getattr(kind, key)

        def read(section: Section) -> Any:
            if self.is_counting:
                self.seen.update(paths)
            return field.__get__(section)

        return property(read)


def merged(kind: type[AnySection], owners: Mapping[str, Section]) -> AnySection:
    """Return a section whose values are those of others, by key. A read of it counts as a read of the owner."""
    values_of = {id(owner): asdict(owner) for owner in owners.values()}
    values = {key: values_of[id(owner)][key] for key, owner in owners.items()}
    noting = {key: owner for key, owner in owners.items() if key in getattr(owner, _NOTED, ())}
    if not noting:
        return kind(**values)
    reads: Reads = getattr(next(iter(noting.values())), _READS)
    return reads.noting(kind, {key: getattr(owner, _NOTED)[key] for key, owner in noting.items()})(**values)


def _holds_sections(value: Any) -> bool:
    return isinstance(value, Section) or (isinstance(value, dict) and any(map(_holds_sections, value.values())))


def subclass(kind: type[AnySection], own: Mapping[str, Any]) -> type[AnySection]:
    """Return a class with the same fields and name, and the attributes ``own``."""
    meta: Any = type(kind)
    made: type[AnySection] = meta(kind.__name__, (kind,), {"__module__": kind.__module__, **own})
    return made


# --- the types of the keys below ----------------------------------------------------------------------


Count = Annotated[int, Meta(ge=1, le=2048)]
BufferKind = Literal["tcm", "hbm", "sram"]
Backpressure = Literal["sleep", "poll"]
Latch = Literal["copy", "in_place"]
CreditReturnMode = Literal["fast_path", "fabric", "piggyback", "auto"]
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
    """Grid, ``w`` columns wide (W to E) and ``h`` rows high (N to S)."""

    w: Annotated[int, Meta(ge=1, le=64)]
    h: Annotated[int, Meta(ge=1, le=64)]


class CustomLink(Section, frozen=True):
    """Edge of ``topology: custom``: both directions between two SIPs' ports. ``link``: its own preset."""

    a: Index
    a_port: str
    b: Index
    b_port: str
    link: str | None = None


class LinkOutage(Section, frozen=True):
    """Outage of the link at a port, such as ``0.E``, in both directions; it ends ``for_us`` later, retrained."""

    port: str
    at_us: OutageTime
    for_us: OutageTime


class Sips(Section, frozen=True):
    """``system.sips``: the number of SIPs, their topology, and the link preset of ``links.yaml``.

    ``links``: presets of single links by a port at one end, ``{"0.E": ethernet_100g}``; both directions have it.
    ``num_links``: links between two neighbours, for topologies that have a choice; null: one. ``outages``: of links,
    each named by a port at one end.
    """

    count: Count
    topology: str
    link: str
    shape: tuple[Count, Count] | None = None
    custom_links: tuple[CustomLink, ...] = ()
    links: dict[str, str] = {}
    num_links: NumLinks | None = None
    outages: tuple[LinkOutage, ...] = ()


class SystemSection(Section, frozen=True):
    """``system``: the kind of chip of every SIP, and the SIPs. ``chip_params``: checked by the kind's own struct; empty
    for ``ahbm``, which has sections of its own.
    """

    chip: str
    sips: Sips
    chip_params: dict[str, Any] = {}


class SipPorts(Section, frozen=True):
    """Cube of each IO port of a SIP; ``null``: the middle of that side of the mesh."""

    E: Index | None = None
    W: Index | None = None
    N: Index | None = None
    S: Index | None = None


class SipSection(Section, frozen=True):
    """``sip``: the cubes of one SIP, and the places of its ports."""

    cube_mesh: Mesh
    cube_gap_mm: NonNegative
    ports: SipPorts
    port_distance_mm: NonNegative


class CubeNoc(Section, frozen=True):
    """Mesh of routers, PE ``i`` on router ``i`` (row by row); every distance in millimetres of wire."""

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
    """IPCQ settings (ADR-0023 D11); an algorithm's entry overrides ``defaults`` key by key."""

    buffer_kind: BufferKind
    backpressure: Backpressure
    poll_interval_ns: PollInterval
    poll_interval_max_ns: PollInterval | None
    latch: Latch | None
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


class CclDefaults(IpcqKnobs, frozen=True):
    """``defaults``: the algorithm that runs, and the settings from which every algorithm starts.

    ``all_reduce``: the meaning of a script's ``all_reduce`` of a tensor with one row per cube.
    """

    algorithm: str
    all_reduce: AllReduce
    workers: Annotated[int, Meta(ge=1, le=4096)]
    worker_bytes: Annotated[int, Meta(ge=1, le=2**40)]
    group_KiB: Annotated[int, Meta(ge=1, le=2**20)]
    world_size: Ranks | None = None


class AlgorithmOwn(Section, frozen=True):
    """Keys that only an entry of ``algorithms`` has: the module and its wiring.

    ``topology`` is a neighbour table; ``world_size`` counts the ranks of the wiring, one per ``rank_per``;
    ``opposites`` are pairs of directions besides E/W, N/S and their ``global_`` forms.
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
            "__doc__": "One entry of ``algorithms``: its own keys, and overrides of ``defaults``.",
        },
        module=__name__,
        frozen=True,
        forbid_unknown_fields=True,
        kw_only=True,
    )


OF_MODULE = frozenset(field.name for field in fields(AlgorithmEntry) if not field.required)
"""Optional keys of an entry of ``algorithms``: their meaning depends on the module."""


class CclFile(Section, frozen=True):
    """Keys of ``ccl.yaml``."""

    defaults: CclDefaults
    algorithms: dict[str, AlgorithmEntry]


# --- links.yaml: presets of link kinds --------------------------------------------------------------


class LinkPreset(Section, frozen=True):
    """Named parameter set of one link kind; ``params`` is checked by that kind's own struct."""

    kind: str
    source: str
    params: dict[str, Any]

    for_readers: ClassVar[tuple[str, ...]] = ("source",)


class LinksFile(Section, frozen=True):
    """Keys of ``links.yaml``."""

    links: dict[str, LinkPreset]


class Resolved(Section, frozen=True):
    """Config of a run: all four files after overrides. Every process reads it; the digest covers it.

    ``reads``: the user's changes that were read.
    """

    topology: TopologyFile
    components: ComponentsFile
    ccl: CclFile
    links: LinksFile

    reads: ClassVar[Reads] = Reads()

    def watched(self, paths: Sequence[Path], changes: Sequence[Change] = ()) -> "Resolved":
        """Return this config, with ``reads`` of its own for the values at ``paths``."""
        reads = Reads(paths, changes)
        kind = subclass(Resolved, {"reads": reads})
        return kind(**{stem: reads.watched(section) for stem, section in asdict(self).items()})
