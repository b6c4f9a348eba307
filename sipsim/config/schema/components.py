"""The schema of ``components.yaml``: what each part costs, one frozen struct a section."""

from typing import Annotated, Any, Literal

from msgspec import Meta

from sipsim.config.schema.section import Index, NonNegative, PositiveInt, Section

Positive = Annotated[float, Meta(ge=1e-9, le=1e9)]
"""Such as a bandwidth in GB/s: at least a byte a second."""
QueueDepth = Annotated[int, Meta(ge=1, le=65536)]
FlitBytes = Annotated[int, Meta(ge=2, le=4096)]
FlitOverhead = Annotated[int, Meta(ge=0, le=4095)]


class Wire(Section, frozen=True):
    """``wire``: delay of any wire, per millimetre."""

    ns_per_mm: NonNegative


class Node(Section, frozen=True):
    """A part on a route: a fixed cost for a transfer's head and the bandwidth of the edges into and out of it."""

    overhead_ns: NonNegative
    bandwidth_GBps: Positive


class RouterCost(Section, frozen=True, omit_defaults=True):
    """``router``: a node with input buffers.

    ``buffer_packets``: of each virtual channel at each input of every node that routes pass, ``null`` for no limit.
    ``packet_bytes``: the most that a packet carries, ``null`` for a chunk of the arbitration. Not given, they are in no
    digest.
    """

    overhead_ns: NonNegative
    bandwidth_GBps: Positive
    buffer_packets: Annotated[int, Meta(ge=1, le=65536)] | None = None
    packet_bytes: Annotated[int, Meta(ge=1, le=65536)] | None = None


class UciePort(Section, frozen=True):
    """``ucie_port``: the crossing between two cubes, of which each of its ports takes half
    (``sipsim.fabric.links.ucie.noc_ucie``).

    ``flit_bytes``: null for payloads without flits.
    """

    fdi_to_fdi_ns: NonNegative
    bandwidth_GBps: Positive
    flit_bytes: FlitBytes | None
    flit_overhead_bytes: FlitOverhead


class IoPortCost(Section, frozen=True, omit_defaults=True):
    """``io_port``: a node with a receive buffer for its link.

    ``buffer_packets``: of each virtual channel, in packets of the routers' buffers, ``null`` for no limit.
    """

    overhead_ns: NonNegative
    bandwidth_GBps: Positive
    buffer_packets: Annotated[int, Meta(ge=1, le=65536)] | None = None


class MemoryCost(Section, frozen=True, omit_defaults=True):
    """A memory behind a port: a node with access times.

    ``kind`` is a memory kind, ``null`` for fixed latencies; ``params`` is checked by that kind's own struct. Not given,
    they are in no digest.
    """

    overhead_ns: NonNegative
    bandwidth_GBps: Positive
    read_latency_ns: NonNegative
    write_latency_ns: NonNegative
    kind: str | None = None
    params: dict[str, Any] = {}


class TcmCost(Section, frozen=True, omit_defaults=True):
    """The PE's own memory: access times only, since its PE reaches it without the fabric. See ``MemoryCost``."""

    read_latency_ns: NonNegative
    write_latency_ns: NonNegative
    kind: str | None = None
    params: dict[str, Any] = {}


class TcmLayout(Section, frozen=True):
    """The regions of ADR-0023 D20, in MiB from the bottom: kernel memory, IPCQ receive rings, scratch.

    ``handles_take_room``: what a kernel holds lies in kernel memory and may fill it.
    """

    kernel_MiB: Annotated[int, Meta(ge=1, le=1024)]
    ipcq_MiB: Annotated[int, Meta(ge=1, le=1024)]
    scratch_MiB: Annotated[int, Meta(ge=0, le=1024)]
    handles_take_room: bool


class PeDma(Section, frozen=True):
    """``pe_dma``: a node with the sizes of its read commands and write acknowledgements."""

    overhead_ns: NonNegative
    bandwidth_GBps: Positive
    command_bytes: PositiveInt
    ack_bytes: PositiveInt


class PeMmu(Section, frozen=True):
    """``pe_mmu``: pages, entries of the TLB, and the time of a page walk; see ``sipsim.chips.ahbm.memory.mmu.pe_mmu``.

    ``virtual_rings``: queue pairs have the virtual address of the peer's ring, too, and sends go through the TLB.
    """

    page_KiB: Annotated[int, Meta(ge=4, le=2**20)]
    tlb_entries: Annotated[int, Meta(ge=1, le=65536)]
    walk_ns: NonNegative
    virtual_rings: bool


class PeIpcq(Section, frozen=True):
    """``pe_ipcq``: its overhead on a send and on a credit."""

    overhead_ns: NonNegative


class PeCpu(Section, frozen=True):
    """``pe_cpu``: what the core that runs a kernel needs for a command, to wake up, and for a poll; 0 is nothing."""

    issue_ns: NonNegative
    wakeup_ns: NonNegative
    poll_ns: NonNegative


class PeScheduler(Section, frozen=True):
    """``pe_scheduler``: places in the queue of each engine; ``null`` is no queue, every command starts when issued."""

    queue_depth: QueueDepth | None


class PeMath(Section, frozen=True):
    """``pe_math``: start-up of an operation, and bandwidth over its widest operand or result.

    ``special_factor``: how many times as long special functions take for their bytes.
    """

    overhead_ns: NonNegative
    bandwidth_GBps: Positive
    special_factor: Annotated[float, Meta(ge=1, le=1024)]


class PeGemm(Section, frozen=True):
    """``pe_gemm``: a systolic array and what feeds it; see ``sipsim.chips.ahbm.gemm``.

    ``accumulators``: folds that take turns. ``buffer_KiB``: of the TCM, for a command's operands and outputs;
    ``chunk_bytes``: least bytes of a row of their pieces. At most ``outstanding_loads`` and ``outstanding_stores`` of
    these are on their way at a time; beside loads and stores of the kernel, a load is not added to ``shared_KiB`` or
    more behind the first.
    """

    rows: Annotated[int, Meta(ge=1, le=1024)]
    columns: Annotated[int, Meta(ge=1, le=1024)]
    clock_GHz: Annotated[float, Meta(ge=0.001, le=100)]
    dataflow: Literal["os", "ws", "is"]
    accumulators: Annotated[int, Meta(ge=1, le=256)]
    buffer_KiB: Annotated[int, Meta(ge=1, le=2**20)]
    chunk_bytes: Annotated[int, Meta(ge=1, le=65536)]
    outstanding_loads: Annotated[int, Meta(ge=1, le=256)]
    shared_KiB: Annotated[int, Meta(ge=1, le=2**20)]
    outstanding_stores: Annotated[int, Meta(ge=1, le=256)]


class PeFetchStore(Section, frozen=True):
    """``pe_fetch_store``: start-up of a move between the TCM and the engines, which takes the TCM's ports."""

    overhead_ns: NonNegative


class IoCpu(Section, frozen=True):
    """``io_cpu``: a node at the edge of the SIP, at the first router of ``cube``.

    It takes ``launch_ns`` for a launch and ``gather_ns`` for the answer of a cube, one after the other.
    """

    cube: Index
    overhead_ns: NonNegative
    bandwidth_GBps: Positive
    launch_ns: NonNegative
    gather_ns: NonNegative


class MCpu(Section, frozen=True):
    """``m_cpu``: a node of every cube, at its first router.

    It takes ``dispatch_ns`` for a message to a PE and ``gather_ns`` for the answer of one, one after the other.
    """

    overhead_ns: NonNegative
    bandwidth_GBps: Positive
    dispatch_ns: NonNegative
    gather_ns: NonNegative


class Launch(Section, frozen=True):
    """``launch``: the path of a launch from the host to the PEs and back.

    ``host_latency_ns``: from the host to IO_CPU, and the same back. The sizes are those of a message to an M_CPU, to a
    PE, and of an answer. ``start_margin_ns``: from IO_CPU's stamp to the start that it stamps; ``null`` for the time
    that the messages need at most where nothing else is there. ``start_skew_ns``: by rank, how much later its launches
    leave the host; of other ranks a number drawn from the seed, ``max_start_skew_ns`` at most.
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
    """The whole of ``components.yaml``. ``parts``: by node kind, what a part without a section of its own is told.

    ``pe_mmu``: ``null`` for none. With ``launch: null`` kernels start when the host launches
    them.
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
