"""The parameters of a chip of this family, as ``configs/chips`` and ``system.chip_params`` give them."""

from typing import Annotated

from msgspec import Meta

from sipsim.config.section import PositiveInt, Section
from sipsim.units import gbytes_per_s_to_bps, ns_to_ps

Coordinate = tuple[Annotated[int, Meta(ge=0, lt=64)], Annotated[int, Meta(ge=0, lt=64)]]
Cycles = Annotated[int, Meta(ge=0, le=10**6)]
Ns = Annotated[float, Meta(ge=0, le=1e6)]
Span = tuple[Annotated[int, Meta(ge=0, lt=64)], Annotated[int, Meta(ge=0, lt=64)]]


class NocParams(Section, frozen=True):
    """Both NoCs: ``width`` x ``height`` routers each, a torus whose packets go one way in each dimension."""

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

    ``queues``: transmit queues in use. ``accept_ahead``: commands that one takes before it is busy. ``copy_GBps``: at
    which each of the two Ethernet subsystems of a link moves a message between L1 and the wire; it is seen when all of
    it has reached the far L1. null: they take no time. ``copy_bytes``: that one stores; more is moved piece by piece,
    while the wire carries the rest.
    """

    cores: tuple[Coordinate, ...]
    l1_KiB: PositiveInt
    kernel_base: Annotated[int, Meta(ge=4096, multiple_of=4096)]
    queues: Annotated[int, Meta(ge=1, le=2)]
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


class ChipParams(Section, frozen=True):
    """A chip. ``clock_MHz``: of NoCs and cores."""

    clock_MHz: Annotated[float, Meta(ge=1, le=1e5)]
    noc: NocParams
    tensix: TensixParams
    ethernet: EthernetParams
    dram: DramParams
    risc: RiscParams
    data_mover: DataMoverParams

    def cycles_ps(self, cycles: int) -> int:
        """So many cycles of the clock."""
        return ns_to_ps(cycles * 1000 / self.clock_MHz)

    @property
    def noc_bps(self) -> int:
        """Bytes a second of a NoC's edge: a flit a cycle."""
        return gbytes_per_s_to_bps(self.noc.flit_bytes * self.clock_MHz / 1000)
