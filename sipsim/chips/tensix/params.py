"""The parameters of a chip of this family, as ``configs/chips`` and ``system.chip_params`` give them."""

from enum import Enum
from typing import Annotated

from msgspec import Meta

from sipsim.config.schema import PositiveInt, Section
from sipsim.core.units import gbytes_per_s_to_bps, ns_to_ps

Coordinate = tuple[Annotated[int, Meta(ge=0, lt=64)], Annotated[int, Meta(ge=0, lt=64)]]
Cycles = Annotated[int, Meta(ge=0, le=10**6)]
Ns = Annotated[float, Meta(ge=0, le=1e6)]
Span = tuple[Annotated[int, Meta(ge=0, lt=64)], Annotated[int, Meta(ge=0, lt=64)]]


class NocParams(Section, frozen=True):
    """Both NoCs: ``width`` x ``height`` routers each, a torus whose packets go one way in each dimension.
    Packets of all tiles share its links.
    """

    width: Annotated[int, Meta(ge=2, le=64)]
    height: Annotated[int, Meta(ge=2, le=64)]
    hop_cycles: Cycles
    niu_cycles: Cycles
    flit_bytes: PositiveInt
    packet_flits: PositiveInt


class TensixParams(Section, frozen=True):
    """Worker tiles: all of ``columns`` x ``rows``. ``l1_KiB``: the memory of each, of which a kernel has what lies from
    ``kernel_base`` on. ``processors``: those that move data.
    """

    columns: tuple[Span, ...]
    rows: tuple[Span, ...]
    l1_KiB: PositiveInt
    kernel_base: Annotated[int, Meta(ge=4096, multiple_of=4096)]
    processors: Annotated[int, Meta(ge=1, le=8)]


class EthernetParams(Section, frozen=True):
    """Ethernet cores: ``cores`` by channel, ``l1_KiB`` each, of which a kernel has what lies from ``kernel_base`` on.

    ``accept_ahead``: commands that the transmit queue takes before it is busy. ``copy_GBps``: the rate of each of a
    link's two Ethernet subsystems, between L1 and the wire; null: no time. The far core sees a message when all is in
    L1. ``copy_bytes``: the store of a subsystem, which moves a longer message piece by piece while the wire carries
    the rest.
    """

    cores: tuple[Coordinate, ...]
    l1_KiB: PositiveInt
    kernel_base: Annotated[int, Meta(ge=4096, multiple_of=4096)]
    accept_ahead: PositiveInt
    copy_GBps: Annotated[float, Meta(gt=0, le=1e6)] | None
    copy_bytes: PositiveInt


class DramParams(Section, frozen=True):
    """DRAM channels, each reached at one tile: ``cores`` by channel; a rate and a latency."""

    cores: tuple[Coordinate, ...]
    channel_MiB: PositiveInt
    GBps: Annotated[float, Meta(gt=0, le=1e6)]
    latency_ns: Ns


class RiscParams(Section, frozen=True):
    """What the core that runs a kernel spends: on a NoC command, on an Ethernet command, on each look at a word in a
    loop that waits, on an access to L1, on the start of a kernel.
    """

    noc_command_ns: Ns
    eth_command_ns: Ns
    poll_ns: Annotated[float, Meta(gt=0, le=1e6)]
    l1_access_ns: Annotated[float, Meta(gt=0, le=1e6)]
    timer_ns: Annotated[float, Meta(gt=0, le=1e6)]


class DataMoverParams(Section, frozen=True):
    """What the loop of a data mover spends besides its calls, whenever a visit of a channel finds work: on a payload to
    send, and on one that has come.
    """

    sender_visit_ns: Ns
    receiver_visit_ns: Ns


class RouterCosts(Section, frozen=True):
    """What the processor of a router spends. ``round_ns``: each time round its loop. ``look_ns``: on a channel for
    which there is nothing to do, and before each visit. Of a sender channel: ``send_ns`` before the Ethernet command
    of a packet, ``sent_ns`` behind it, ``credit_ns`` on slots that are told to be free. Of a receiver channel:
    ``forward_ns`` before the first NoC command of a packet, ``further_ns`` before each further one, ``completion_ns``
    on telling that slots are free, ``ack_ns`` on a first-level acknowledgement.
    """

    round_ns: Ns
    look_ns: Annotated[float, Meta(gt=0, le=1e6)]
    send_ns: Ns
    sent_ns: Ns
    credit_ns: Ns
    forward_ns: Ns
    further_ns: Ns
    completion_ns: Ns
    ack_ns: Ns


class FlowControl(Enum):
    """What tells a sender that its slots are free."""

    SYNC_WORD = "sync_word"
    COMPLETIONS = "completions"
    FIRST_LEVEL_ACK = "first_level_ack"


class Avoidance(Enum):
    """What keeps a ring from a deadlock."""

    NONE = "none"
    DATELINE = "dateline"
    BUBBLE = "bubble"


class Slots(Section, frozen=True):
    """Packets that each channel has room for."""

    sender: PositiveInt
    receiver: PositiveInt


class RevisionParams(Section, frozen=True):
    """A revision of the fabric's protocol. ``flow_control``: first-level acks are sent on rings alone. ``slots``:
    the first that fit; ``mesh_slots``: those of meshes, if not the same. ``spare_slots``: the same for routers near a
    dateline, whose idle channels have none; empty where they stay unused. ``costs``: null where they are the fabric's.
    """

    flow_control: FlowControl
    avoidance: Avoidance
    has_short_headers: bool
    slots: tuple[Slots, ...]
    mesh_slots: tuple[Slots, ...] = ()
    spare_slots: tuple[Slots, ...] = ()
    costs: RouterCosts | None = None

    def choices(self, is_mesh: bool) -> tuple[Slots, ...]:
        """The slots of a fabric, the first that fit."""
        return self.mesh_slots if is_mesh and self.mesh_slots else self.slots


class FabricParams(Section, frozen=True):
    """The fabric of data movers. ``payload_bytes``: the default of a packet; ``most_payload_bytes``: the longest.
    ``transaction_ids``: NoC writes of a receiver channel on their way. ``copy_bytes``: of a packet, that each Ethernet
    subsystem stores. ``mux_visit_ns``: of a mux, for a packet. ``one_server``: one processor serves all channels of a
    router; else each has one. ``revisions``: the last one is the default.
    """

    payload_bytes: PositiveInt
    most_payload_bytes: PositiveInt
    transaction_ids: PositiveInt
    copy_bytes: PositiveInt
    mux_visit_ns: Ns
    one_server: bool
    costs: RouterCosts
    revisions: dict[str, RevisionParams]


class JitterParams(Section, frozen=True):
    """What is added to latencies, from 0 to so much, if there is a ``seed``: to the arrival of an Ethernet message, to
    the start of a NoC command, to that of a kernel.
    """

    seed: Annotated[int, Meta(ge=0, le=2**63 - 1)] | None
    link_ns: Ns
    noc_ns: Ns
    start_ns: Ns


class LaunchParams(Section, frozen=True):
    """``start_skew_ns``: by rank, how much later than that of the others its host program starts."""

    start_skew_ns: dict[str, Ns]


class CclParams(Section, frozen=True):
    """The operations on the fabric. ``launch_ns``: from a call until its kernels begin; ``skew_ns``: how much later the
    other chips do than chip 0, in benches of one call. ``page_ns``: what a worker spends on each page that it sends or
    writes, besides its commands. ``add_GBps``: at which a worker adds pages. ``packet_bytes``: of a packet's payload.
    ``read_packets``: that a reader has on their way at once; ``buffer_packets``: that its buffer holds.
    ``chunks_per_sync``: packets of a relay between increments of its semaphore. ``direct_bytes``: up to which a
    reduce-scatter on a ring is direct. ``copier_bytes``: from which on, of a link, a worker of its own copies a chip's
    own slice; null: never. ``has_barrier``: all chips of a link's line or ring begin together.
    """

    launch_ns: Ns
    skew_ns: Ns
    page_ns: Ns
    add_GBps: Annotated[float, Meta(gt=0, le=1e6)]
    packet_bytes: PositiveInt
    read_packets: PositiveInt
    buffer_packets: PositiveInt
    ring_chunks_per_sync: PositiveInt
    line_chunks_per_sync: PositiveInt
    direct_bytes: Annotated[int, Meta(ge=0)]
    copier_bytes: Annotated[int, Meta(ge=0)] | None
    has_barrier: bool

    def chunks_per_sync(self, is_ring: bool) -> int:
        """Of a relay of a long message."""
        return self.ring_chunks_per_sync if is_ring else self.line_chunks_per_sync


class ChipParams(Section, frozen=True):
    """A chip. ``clock_MHz``: of NoCs and cores."""

    clock_MHz: Annotated[float, Meta(ge=1, le=1e5)]
    noc: NocParams
    tensix: TensixParams
    ethernet: EthernetParams
    dram: DramParams
    risc: RiscParams
    data_mover: DataMoverParams
    fabric: FabricParams
    launch: LaunchParams
    jitter: JitterParams
    ccl: CclParams

    def cycles_ps(self, cycles: int) -> int:
        """So many cycles of the clock."""
        return ns_to_ps(cycles * 1000 / self.clock_MHz)

    @property
    def noc_bps(self) -> int:
        """Bytes a second of a NoC's edge: a flit a cycle."""
        return gbytes_per_s_to_bps(self.noc.flit_bytes * self.clock_MHz / 1000)
