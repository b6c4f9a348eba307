"""The schema of the config files, one frozen struct a section; ``components.yaml`` has a module of its own.

Units are in the key names: ``_ns`` nanoseconds, ``_mm`` millimetres, ``_GBps`` 1e9 bytes a second,
``_bytes`` bytes, ``_MiB`` 2**20 bytes. Values are in ``configs/*.yaml``, each with its source; the
schema has no defaults of its own, except ``None`` and empty for optional keys.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from msgspec import Meta, defstruct
from msgspec.structs import asdict, fields

from sipsim.config.schema.components import ComponentsFile
from sipsim.config.schema.reads import Change, Path, Reads, subclass
from sipsim.config.schema.section import Index, NonNegative, PositiveInt, Section, field_types

Count = Annotated[int, Meta(ge=1, le=2048)]
BufferKind = Literal["tcm", "hbm", "sram"]
Backpressure = Literal["sleep", "poll"]
Latch = Literal["copy", "in_place"]
CreditReturnMode = Literal["fast_path", "fabric", "piggyback", "auto"]
PollInterval = Annotated[float, Meta(ge=0.001, le=1e6)]
SlotCount = Annotated[int, Meta(ge=1, le=65536)]
SlotSize = Annotated[int, Meta(ge=1, le=2**24)]
ChunkSize = Annotated[int, Meta(ge=1, le=65536)]
CreditSize = Annotated[int, Meta(ge=1, le=4096)]
Weight = Annotated[int, Meta(ge=1, le=100)]
NumLinks = Annotated[int, Meta(ge=1, le=6)]
OutageTime = Annotated[float, Meta(ge=1e-6, le=1e9)]
RankPer = Literal["pe", "cube", "sip"]
AllReduce = Literal["elementwise", "intercube"]
Ranks = Annotated[int, Meta(ge=1, le=2**25)]


# --- topology.yaml: the hardware -------------------------------------------------------------------


class Mesh(Section, frozen=True):
    """A grid ``w`` columns wide (W to E) and ``h`` rows high (N to S)."""

    w: Annotated[int, Meta(ge=1, le=64)]
    h: Annotated[int, Meta(ge=1, le=64)]


class CustomLink(Section, frozen=True):
    """One edge of ``topology: custom``: both directions between two SIPs' ports. ``link``: its own preset."""

    a: Index
    a_port: str
    b: Index
    b_port: str
    link: str | None = None


class LinkOutage(Section, frozen=True):
    """The link at a port, ``0.E``, goes down at a time and is retrained, in both directions; it resumes ``for_us``
    later.
    """

    port: str
    at_us: OutageTime
    for_us: OutageTime


class Sips(Section, frozen=True):
    """``system.sips``: the number of SIPs, their topology, and the link preset of ``links.yaml``.

    ``links``: presets of single links by a port at one end, ``{"0.E": ethernet_100g}``; both directions have it.
    ``num_links``: links between two neighbours, for topologies that have a choice; null is one.
    ``outages``: of links, each named by a port at one end.
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
    """``system``: the kind of chip that every SIP is, and the SIPs. ``chip_params``: checked by the kind's own struct;
    empty for ``ahbm``, which has sections of its own.
    """

    chip: str
    sips: Sips
    chip_params: dict[str, Any] = {}


class SipPorts(Section, frozen=True):
    """The cube that each IO port of a SIP sits on; ``null`` is the middle of that side of the mesh."""

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
    """A mesh of routers, PE ``i`` on router ``i`` (row by row); every distance in millimetres of wire."""

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
    """The whole of ``topology.yaml``."""

    system: SystemSection
    sip: SipSection
    cube: CubeSection


# --- ccl.yaml: collectives --------------------------------------------------------------------------


class IpcqKnobs(Section, frozen=True):
    """IPCQ settings of ADR-0023 D11; an algorithm's entry overrides ``defaults`` key by key."""

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
    vc_compute_weight: Weight
    vc_comm_weight: Weight
    credit_virtual_channel: bool
    ipcq_credit_size_bytes: CreditSize
    strict_validation: bool
    hw_strict: bool


class CclDefaults(IpcqKnobs, frozen=True):
    """``defaults``: the algorithm that runs, and the settings that every algorithm starts from.

    ``all_reduce``: what a script's ``all_reduce`` of a tensor with a row a cube means.
    """

    algorithm: str
    all_reduce: AllReduce
    workers: Annotated[int, Meta(ge=1, le=4096)]
    worker_bytes: Annotated[int, Meta(ge=1, le=2**40)]
    group_KiB: Annotated[int, Meta(ge=1, le=2**20)]
    world_size: Ranks | None = None


class AlgorithmOwn(Section, frozen=True):
    """Keys that only an entry of ``algorithms`` has: the module and its wiring.

    ``topology`` is a neighbour table; ``world_size`` counts the ranks of the wiring, one a ``rank_per``; ``opposites``
    are pairs of directions besides E/W, N/S and their ``global_`` forms.
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
"""What an entry of ``algorithms`` may say besides: another module does not mean the same by it."""


class CclFile(Section, frozen=True):
    """The whole of ``ccl.yaml``."""

    defaults: CclDefaults
    algorithms: dict[str, AlgorithmEntry]


# --- links.yaml: presets of link kinds --------------------------------------------------------------


class LinkPreset(Section, frozen=True):
    """A named parameter set of one link kind; ``params`` is checked by that kind's own struct."""

    kind: str
    source: str
    params: dict[str, Any]

    for_readers: ClassVar[tuple[str, ...]] = ("source",)


class LinksFile(Section, frozen=True):
    """The whole of ``links.yaml``."""

    links: dict[str, LinkPreset]


class Resolved(Section, frozen=True):
    """All four files after overrides. Every process reads it; the digest covers it.

    ``reads``: which of the user's changes were read.
    """

    topology: TopologyFile
    components: ComponentsFile
    ccl: CclFile
    links: LinksFile

    reads: ClassVar[Reads] = Reads()

    def watched(self, paths: Sequence[Path], changes: Sequence[Change] = ()) -> "Resolved":
        """This config, with ``reads`` of its own for the values at ``paths``."""
        reads = Reads(paths, changes)
        kind = subclass(Resolved, {"reads": reads})
        return kind(**{stem: reads.watched(section) for stem, section in asdict(self).items()})
