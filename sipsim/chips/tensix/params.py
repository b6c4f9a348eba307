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
    """Both NoCs. Each NoC is a unidirectional torus of ``width`` x ``height`` routers; all tiles are on both NoCs."""

    width: Annotated[int, Meta(ge=2, le=64)]
    height: Annotated[int, Meta(ge=2, le=64)]
    hop_cycles: Cycles
    niu_cycles: Cycles
    flit_bytes: PositiveInt
    packet_flits: PositiveInt


class TensixParams(Section, frozen=True):
    """Worker tiles at all crossings of ``columns`` and ``rows``. ``l1_KiB``: memory per tile; kernels may use addresses
    from ``kernel_base`` on. ``processors``: number of data movement processors per tile.
    """

    columns: tuple[Span, ...]
    rows: tuple[Span, ...]
    l1_KiB: PositiveInt
    kernel_base: Annotated[int, Meta(ge=4096, multiple_of=4096)]
    processors: Annotated[int, Meta(ge=1, le=8)]


class EthernetParams(Section, frozen=True):
    """Ethernet cores: ``cores`` by channel, ``l1_KiB`` of memory each; kernels may use addresses from ``kernel_base``.

    ``accept_ahead``: commands that the transmit queue takes before it is busy. ``copy_GBps``: rate in GB/s at which the
    Ethernet subsystem at either end of a link copies between L1 and the wire; if null, copies take no time. The far
    core sees a message when the whole message is in L1. ``copy_bytes``: buffer size of a subsystem; a longer message is
    copied in parts while the wire carries the rest.
    """

    cores: tuple[Coordinate, ...]
    l1_KiB: PositiveInt
    kernel_base: Annotated[int, Meta(ge=4096, multiple_of=4096)]
    accept_ahead: PositiveInt
    copy_GBps: Annotated[float, Meta(gt=0, le=1e6)] | None
    copy_bytes: PositiveInt


class DramParams(Section, frozen=True):
    """DRAM channels. ``cores``: the tile of each channel; ``GBps``, ``latency_ns``: rate and latency per channel."""

    cores: tuple[Coordinate, ...]
    channel_MiB: PositiveInt
    GBps: Annotated[float, Meta(gt=0, le=1e6)]
    latency_ns: Ns


class RiscParams(Section, frozen=True):
    """Costs of a core that runs a kernel: per NoC command, per Ethernet command, per poll of a word, per access to L1,
    per read of the timer and per call of ``run_routing``.
    """

    noc_command_ns: Ns
    eth_command_ns: Ns
    poll_ns: Annotated[float, Meta(gt=0, le=1e6)]
    l1_access_ns: Annotated[float, Meta(gt=0, le=1e6)]
    timer_ns: Annotated[float, Meta(gt=0, le=1e6)]
    run_routing_ns: Ns


class DataMoverParams(Section, frozen=True):
    """Costs of a data mover's visit to a channel, besides the calls in the visit: to a sender channel with a payload to
    send, and to a receiver channel with an arrived payload.
    """

    sender_visit_ns: Ns
    receiver_visit_ns: Ns


class RouterCosts(Section, frozen=True):
    """Costs of a router's processor. ``round_ns``: per round of the polling loop. ``look_ns``: per poll of a channel,
    with or without work. At a sender channel: ``send_ns`` before the Ethernet command of a packet, ``sent_ns`` after
    the command, ``credit_ns`` to handle slots that the far end has freed. At a receiver channel: ``forward_ns`` before
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
    """Signal by which a receiver reports free slots to the sender."""

    SYNC_WORD = "sync_word"
    COMPLETIONS = "completions"
    FIRST_LEVEL_ACK = "first_level_ack"


class Avoidance(Enum):
    """Method that avoids deadlocks on a ring of chips."""

    NONE = "none"
    DATELINE = "dateline"
    BUBBLE = "bubble"


class Slots(Section, frozen=True):
    """Number of slots per sender channel and per receiver channel."""

    sender: PositiveInt
    receiver: PositiveInt


class RevisionParams(Section, frozen=True):
    """Revision of the fabric's protocol. First-level acknowledgements exist only on rings. ``slots``: slot counts in
    order of preference; the first that fits into L1 is used. ``mesh_slots``: slot counts for meshes, if different.
    ``spare_slots``: slot counts for routers near a dateline, whose idle channels have no slots; empty if the slots of
    idle channels stay unused. ``costs``: costs of this revision's routers; null for the costs of the fabric.
    """

    flow_control: FlowControl
    avoidance: Avoidance
    has_short_headers: bool
    slots: tuple[Slots, ...]
    mesh_slots: tuple[Slots, ...] = ()
    spare_slots: tuple[Slots, ...] = ()
    costs: RouterCosts | None = None

    @property
    def is_first(self) -> bool:
        """Whether this is the protocol of pull request 14923: a sync word for each slot, acknowledgements in the one
        transmit queue, local writes that block the router, 0 to tear a connection down, and links by default as many as
        all neighbours have.
        """
        return self.flow_control is FlowControl.SYNC_WORD

    def choices(self, is_mesh: bool) -> tuple[Slots, ...]:
        """Return the slot counts to try for a fabric, in order of preference; the first that fits into L1 is used."""
        return self.mesh_slots if is_mesh and self.mesh_slots else self.slots


class FabricParams(Section, frozen=True):
    """Fabric of data movers. ``payload_bytes``, ``most_payload_bytes``: default and maximum of a packet's payload.
    ``transaction_ids``: the most packets per receiver channel with NoC writes in progress. ``copy_bytes``: bytes of a
    packet that each Ethernet subsystem stores. ``mux_visit_ns``: cost of a mux per packet. ``one_server``: whether one
    processor serves all channels of a router, or one per channel. ``revisions``: the last revision is the default.
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
    """Largest random delays: of the arrival of an Ethernet message (``link_ns``), the start of a NoC command
    (``noc_ns``) and the start of a kernel (``start_ns``); rare delays of the departure of a NoC write and of a kernel's
    store (``late_ns``). Without a ``seed`` nothing is delayed.
    """

    seed: Annotated[int, Meta(ge=0, le=2**63 - 1)] | None
    link_ns: Ns
    noc_ns: Ns
    start_ns: Ns
    late_ns: Ns


class LaunchParams(Section, frozen=True):
    """Start of host programs. ``start_skew_ns``: by rank, the delay until the rank's host program starts."""

    start_skew_ns: dict[str, Ns]


class CclParams(Section, frozen=True):
    """Collective operations on the fabric. ``launch_ns``: time from a call until its kernels begin. ``skew_ns``: delay
    of all chips after chip 0, in benches of one call. ``page_ns``: cost per page that a worker sends or writes, besides
    the commands. ``add_GBps``: rate in GB/s at which a worker adds pages. ``packet_bytes``: payload of a packet.
    ``read_packets``: packets that a reader reads at once. ``buffer_packets``: capacity of the reader's buffer.
    ``*_chunks_per_sync``: packets of a relay between increments of the relay's semaphore. ``direct_bytes``: largest
    tensor for which a reduce-scatter on a ring is direct. ``copier_bytes``: smallest share of a link for which a second
    worker copies the chip's slice; null for none. ``has_barrier``: whether all chips of a fabric begin together.

    Over data movers: ``data_mover_workers``, worker units per link and direction (two tiles each in an all-gather, one
    in a reduce-scatter), and ``data_mover_packet_bytes``, the size of a full packet.
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
    data_mover_workers: Annotated[int, Meta(ge=1, le=16)]
    data_mover_packet_bytes: PositiveInt

    def chunks_per_sync(self, is_ring: bool) -> int:
        """Return the number of packets between a relay's semaphore increments in a long message."""
        return self.ring_chunks_per_sync if is_ring else self.line_chunks_per_sync


class ChipParams(Section, frozen=True):
    """Parameters of a chip. ``clock_MHz``: clock of the NoCs and cores."""

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
        """Return the time of ``cycles`` clock cycles in ps."""
        return ns_to_ps(cycles * 1000 / self.clock_MHz)

    @property
    def noc_bps(self) -> int:
        """The bandwidth of a NoC edge in B/s: one flit per cycle."""
        return gbytes_per_s_to_bps(self.noc.flit_bytes * self.clock_MHz / 1000)
