"""Parameters of a Tensix chip, as given in ``configs/chips`` and ``system.chip_params``."""

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
    """Both NoCs: ``width`` x ``height`` routers each, a torus with one direction per dimension that all tiles share."""

    width: Annotated[int, Meta(ge=2, le=64)]
    height: Annotated[int, Meta(ge=2, le=64)]
    hop_cycles: Cycles
    niu_cycles: Cycles
    flit_bytes: PositiveInt
    packet_flits: PositiveInt


class TensixParams(Section, frozen=True):
    """Worker tiles: all of ``columns`` x ``rows``. ``l1_KiB``: the memory of each; kernels use it from ``kernel_base``
    on. ``processors``: those that move data.
    """

    columns: tuple[Span, ...]
    rows: tuple[Span, ...]
    l1_KiB: PositiveInt
    kernel_base: Annotated[int, Meta(ge=4096, multiple_of=4096)]
    processors: Annotated[int, Meta(ge=1, le=8)]


class EthernetParams(Section, frozen=True):
    """Ethernet cores: ``cores`` by channel, ``l1_KiB`` each; kernels use it from ``kernel_base`` on.

    ``accept_ahead``: commands that the transmit queue takes before it is busy. ``copy_GBps``: the rate of each of a
    link's two Ethernet subsystems, between L1 and the wire; null: copies take no time. The far core sees a message when
    all of it is in L1. ``copy_bytes``: the buffer of a subsystem, which copies a longer message in parts while the wire
    carries the rest.
    """

    cores: tuple[Coordinate, ...]
    l1_KiB: PositiveInt
    kernel_base: Annotated[int, Meta(ge=4096, multiple_of=4096)]
    accept_ahead: PositiveInt
    copy_GBps: Annotated[float, Meta(gt=0, le=1e6)] | None
    copy_bytes: PositiveInt


class DramParams(Section, frozen=True):
    """DRAM channels, each reached at one tile: ``cores`` by channel; rate and latency per channel."""

    cores: tuple[Coordinate, ...]
    channel_MiB: PositiveInt
    GBps: Annotated[float, Meta(gt=0, le=1e6)]
    latency_ns: Ns


class RiscParams(Section, frozen=True):
    """Costs of a core that runs a kernel: of a NoC command, of an Ethernet command, of each poll of a word, of an
    access to L1, and of a read of the timer.
    """

    noc_command_ns: Ns
    eth_command_ns: Ns
    poll_ns: Annotated[float, Meta(gt=0, le=1e6)]
    l1_access_ns: Annotated[float, Meta(gt=0, le=1e6)]
    timer_ns: Annotated[float, Meta(gt=0, le=1e6)]


class DataMoverParams(Section, frozen=True):
    """Costs of a data mover's visit that finds work, besides its calls: at a sender channel for a payload to send, at a
    receiver channel for one that has arrived.
    """

    sender_visit_ns: Ns
    receiver_visit_ns: Ns


class RouterCosts(Section, frozen=True):
    """Costs of a router's processor. ``round_ns``: per round of its loop. ``look_ns``: per poll of a channel without
    work, and before each visit. At a sender channel: ``send_ns`` before the Ethernet command of a packet, ``sent_ns``
    after it, ``credit_ns`` to handle the slots that the far end has freed. At a receiver channel: ``forward_ns`` before
    the first NoC command of a packet, ``further_ns`` before each further command, ``completion_ns`` to report free
    slots, ``ack_ns`` for a first-level acknowledgement.
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
    """Signal by which a sender learns that its slots are free."""

    SYNC_WORD = "sync_word"
    COMPLETIONS = "completions"
    FIRST_LEVEL_ACK = "first_level_ack"


class Avoidance(Enum):
    """Method that keeps a ring from a deadlock."""

    NONE = "none"
    DATELINE = "dateline"
    BUBBLE = "bubble"


class Slots(Section, frozen=True):
    """Slots of each sender and each receiver channel."""

    sender: PositiveInt
    receiver: PositiveInt


class RevisionParams(Section, frozen=True):
    """Revision of the fabric's protocol. ``flow_control``: first-level acknowledgements exist only on rings. ``slots``:
    choices, the first that fits is used; ``mesh_slots``: the choices of meshes, if they differ. ``spare_slots``: the
    choices of routers near a dateline, whose idle channels have no slots; empty if the slots stay unused. ``costs``:
    null if they are the fabric's.
    """

    flow_control: FlowControl
    avoidance: Avoidance
    has_short_headers: bool
    slots: tuple[Slots, ...]
    mesh_slots: tuple[Slots, ...] = ()
    spare_slots: tuple[Slots, ...] = ()
    costs: RouterCosts | None = None

    def choices(self, is_mesh: bool) -> tuple[Slots, ...]:
        """Return the choices of slots of a fabric; the first that fits is used."""
        return self.mesh_slots if is_mesh and self.mesh_slots else self.slots


class FabricParams(Section, frozen=True):
    """Fabric of data movers. ``payload_bytes``: of a packet, by default; ``most_payload_bytes``: the longest.
    ``transaction_ids``: packets of a receiver channel whose NoC writes are under way. ``copy_bytes``: bytes of a packet
    that each Ethernet subsystem stores. ``mux_visit_ns``: of a mux, per packet. ``one_server``: one processor serves
    all channels of a router; else each channel has one. ``revisions``: the last is the default.
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
    """Random delays from 0 to these maxima, if there is a ``seed``: of the arrival of an Ethernet message, of the start
    of a NoC command, of the start of a kernel.
    """

    seed: Annotated[int, Meta(ge=0, le=2**63 - 1)] | None
    link_ns: Ns
    noc_ns: Ns
    start_ns: Ns


class LaunchParams(Section, frozen=True):
    """Start of host programs. ``start_skew_ns``: by rank, the delay of its start."""

    start_skew_ns: dict[str, Ns]


class CclParams(Section, frozen=True):
    """Collective operations on the fabric. ``launch_ns``: from a call until its kernels begin; ``skew_ns``: the later
    start of all chips but chip 0, in benches of one call. ``page_ns``: per page that a worker sends or writes, besides
    its commands. ``add_GBps``: the rate at which a worker adds pages. ``packet_bytes``: of a packet's payload.
    ``read_packets``: that a reader reads at once; ``buffer_packets``: that its buffer holds. ``chunks_per_sync``:
    packets of a relay between increments of its semaphore. ``direct_bytes``: the largest tensor for which a
    reduce-scatter on a ring is direct. ``copier_bytes``: the smallest share of a link for which a separate worker
    copies the chip's own slice; null: never. ``has_barrier``: all chips of a link's line or ring begin together.
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
        """Return the packets between increments for a relay of a long message."""
        return self.ring_chunks_per_sync if is_ring else self.line_chunks_per_sync


class ChipParams(Section, frozen=True):
    """Chip. ``clock_MHz``: of NoCs and cores."""

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
        """Return the time of ``cycles`` of the clock."""
        return ns_to_ps(cycles * 1000 / self.clock_MHz)

    @property
    def noc_bps(self) -> int:
        """Bytes per second of a NoC's edge: one flit per cycle."""
        return gbytes_per_s_to_bps(self.noc.flit_bytes * self.clock_MHz / 1000)
