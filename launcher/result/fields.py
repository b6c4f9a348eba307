"""Keys and columns of the result files of ``ahbm-launch`` and ``ahbm-probe``, each with its meaning."""

from typing import Annotated, Any, get_type_hints

from msgspec import UNSET, Struct, UnsetType, defstruct, field

from launcher.report.checks import SecondPassEntry
from launcher.report.outcome import ErrorFacts
from sipsim import VERSION
from sipsim.core.fields import host_time, no_time, simulated_time
from sipsim.records.explanation import Explanation
from sipsim.records.report import RankRow

SCHEMA = 1


class LinkRow(Struct):
    """Traffic of a link in one direction."""

    name: Annotated[str, no_time("The link, such as 0.E>1.W from port E of SIP 0 to port W of SIP 1.")]
    frames: Annotated[float, no_time("Messages, and credits that travel as messages, per iteration.")]
    payload_bytes: Annotated[float, no_time("Bytes of data in these messages, per iteration.")]
    credit_bytes: Annotated[
        float, no_time("Bytes of frames without data, such as credits, before framing, per iteration.")
    ]
    wire_bytes: Annotated[
        float, no_time("Bytes on the wire per iteration: data, credits, and the framing of the link.")
    ]
    busy_ps: Annotated[int, simulated_time("Time for which wire_bytes occupy the link, per iteration, in ps.")]
    utilisation: Annotated[float, no_time("busy_ps as a fraction of the row's time.")]


class TlbRow(Struct):
    """Lookups in the TLB of a PE."""

    pe: Annotated[str, no_time("The PE, such as sip0.cube0.pe0.")]
    hits: Annotated[float, no_time("Pages touched by commands whose translation was in the TLB, per iteration.")]
    misses: Annotated[float, no_time("Pages for which the page table was walked, per iteration.")]


class EngineRow(Struct):
    """Use of the engines of all PEs whose PE_GEMM ran."""

    pes: Annotated[int, no_time("The number of PEs whose PE_GEMM ran.")]
    busy: Annotated[
        dict[str, float], no_time("The fraction of the time of these PEs' kernels in which each engine was busy.")
    ]
    peak: Annotated[
        float, no_time("The fraction of the kernels' time that the multiplications need at the peak rate of the array.")
    ]
    commands: Annotated[
        dict[str, float], no_time("Fractions of the time of PE_GEMM's commands by activity; overlapped work counts 0.")
    ]


class StackRow(Struct):
    """The HBM stack that moved most bytes; present if the stack's rate is near the limit of the stack's PEs."""

    name: Annotated[str, no_time("The cube, such as sip0.cube0.")]
    GBps: Annotated[
        float, simulated_time("Rate of bytes through the stack's ports, in 1e9 bytes per simulated second.")
    ]
    published_GBps: Annotated[float, simulated_time("The published bandwidth of the stack, in 1e9 bytes per s.")]
    bound_GBps: Annotated[
        float, simulated_time("The bandwidth limit of the PEs that used the stack, in 1e9 bytes per s.")
    ]
    bound: Annotated[str, no_time("The cause of bound_GBps, such as 8 ports of PE_DMA.")]
    keys: Annotated[list[str], no_time("The config keys that determine bound_GBps.")]


class UsageRow(Struct, kw_only=True):
    """Machine usage of a row, from counters; values are null if there are no counters per row, as for a script."""

    link_payload_bytes: Annotated[float | None, no_time("Bytes of data over all links together, per iteration.")] = None
    link_wire_bytes: Annotated[
        float | None, no_time("Bytes on the wires of all links together, per iteration, with framing.")
    ] = None
    busiest_link: Annotated[str | None, no_time("The link that was busy longest; null if no link was used.")] = None
    busiest_link_payload_bytes: Annotated[float | None, no_time("Bytes of data over busiest_link, per iteration.")] = (
        None
    )
    busiest_link_wire_bytes: Annotated[
        float | None, no_time("Bytes on the wire of busiest_link, with framing, per iteration.")
    ] = None
    busiest_link_utilisation: Annotated[
        float | None, no_time("The fraction of the row's time in which busiest_link was busy.")
    ] = None
    busiest_edge: Annotated[str | None, no_time("The edge inside a SIP that was busy longest.")] = None
    busiest_edge_utilisation: Annotated[
        float | None, no_time("The fraction of the row's time in which busiest_edge was busy.")
    ] = None
    kernels: Annotated[int | None, no_time("Kernels that ran, per iteration.")] = None
    links: Annotated[list[LinkRow] | None, no_time("Traffic of each link of the system, per direction.")] = None
    kernel_time: Annotated[
        dict[str, float] | None,
        no_time("Fractions of the kernels' time by the command that was waited for; ended: after a kernel's end."),
    ] = None
    tlbs: Annotated[list[TlbRow], no_time("Lookups of each TLB that was used; empty if PEs have no MMU (pe_mmu).")] = []
    engines: Annotated[EngineRow | None, no_time("Engines of the PEs whose PE_GEMM ran; null if none ran.")] = None
    stack: Annotated[
        StackRow | UnsetType, no_time("The HBM stack that moved most bytes; only if the rate is near the limit.")
    ] = UNSET


Sips = Annotated[int, no_time("Number of SIPs.")]
Topology = Annotated[str, no_time("The topology of the SIPs, as --list topologies names it.")]
Shape = Annotated[str | None, no_time("Width and height of the grid of SIPs, such as 3x2; null for other topologies.")]
Link = Annotated[str, no_time("The presets of the links between SIPs, separated by commas.")]
Cubes = Annotated[int | None, no_time("Number of cubes per SIP; null for a chip without cubes.")]


ROW_START, WITH_OUTAGES, AS_LEFT = "row start", "row start, outages as timed", "as the script left it"
"""States of the machine at the start of a row."""


class RunEntry(UsageRow):
    """Entry of ``runs``: a collective that all ranks of the collective's group have completed, or a program of kernels
    that one SIP has completed.

    The keys describe the conditions of the measurement, the spread of the iterations, and the whole system, so that
    rows of several files can be put into one table.
    """

    sips: Sips
    topology: Topology
    shape: Shape
    link: Link
    cubes: Cubes
    settings: Annotated[
        str,
        no_time(
            "Differences of the config from the defaults, without the algorithm: key=value, in the syntax of --set, "
            "separated by ;, in the order of the config files; empty for the defaults."
        ),
    ]
    row: Annotated[str | None, no_time("The name that the script gave to torch.ahbm.row; null outside of a row.")]
    state: Annotated[
        str,
        no_time(
            f"State of the machine at the row's start: {ROW_START}: as at time 0; {WITH_OUTAGES}: as at time 0, but "
            f"links are down at the times of the run; {AS_LEFT}: as left by earlier work, outside of torch.ahbm.row."
        ),
    ]
    collective: Annotated[
        str,
        no_time("The collective, as --list collectives names it; program for a program of kernels on chips of tiles."),
    ]
    algorithm: Annotated[
        str,
        no_time(
            "The algorithm, as --list algorithms names it; on chips of tiles the operation, its topology, and "
            "data_mover for that transport; for a program the names of its kernels."
        ),
    ]
    dtype: Annotated[str, no_time("The type of an element; bytes for a program.")]
    op: Annotated[str, no_time("The operator; none for a collective that only moves data.")]
    count: Annotated[
        int, no_time("Elements of the larger of a rank's two tensors (source and result); for a program as bytes.")
    ]
    bytes: Annotated[
        int,
        no_time(
            "Size in bytes of the larger of a rank's two tensors; for a program, data that the SIP's links carried."
        ),
    ]
    iters: Annotated[int, no_time("Timed iterations.")]
    time_ns: Annotated[
        float, simulated_time("From the first start to the last end over all ranks, mean of the iterations, in ns.")
    ]
    time_ps: Annotated[int, simulated_time("The same as time_ns, in whole ps.")]
    time_min_ns: Annotated[float, simulated_time("The shortest iteration, in ns.")]
    time_median_ns: Annotated[float, simulated_time("The median of the iterations, in ns.")]
    time_max_ns: Annotated[float, simulated_time("The longest iteration, in ns.")]
    launch_ns: Annotated[
        float,
        simulated_time(
            "The part of time_ns before the first kernel starts and after the last kernel ends: launch, start skew, "
            "and the completion message to the host, in ns."
        ),
    ]
    algbw_GBps: Annotated[
        float, simulated_time("Algorithm bandwidth: bytes / time_ns, in 1e9 bytes per simulated second.")
    ]
    busbw_GBps: Annotated[
        float, simulated_time("Bus bandwidth: algbw_GBps times the collective's factor, as in nccl-tests.")
    ]
    wrong: Annotated[int, no_time("Wrong elements over all ranks and iterations; 0 also if nothing was checked.")]
    checked: Annotated[bool, no_time("Whether every rank's result was checked.")]
    group: Annotated[
        list[int], no_time("The ranks of the collective's group, in the group's order; in --csv separated by spaces.")
    ]


_LAST_COLUMNS = ("settings", "row", "state", "time_min_ns", "time_median_ns", "time_max_ns")
_NO_COLUMNS = ("time_ps", "links", "kernel_time", "tlbs", "engines", "stack")
"""Keys that are no columns of a table."""


def _table(name: str, own: type) -> type[Struct]:
    """Return the type of a CSV row: columns of ``RunEntry``, then columns of ``own``, then ``_LAST_COLUMNS``."""
    entry, columns = (get_type_hints(each, include_extras=True) for each in (RunEntry, own))
    measured = [key for key in RunEntry.__annotations__ if key not in (*_LAST_COLUMNS, *_NO_COLUMNS)]
    fields = {key: entry[key] for key in measured}
    fields |= {key: hint for key, hint in columns.items() if key not in _NO_COLUMNS}
    return defstruct(name, [*fields.items(), *((key, entry[key]) for key in _LAST_COLUMNS)])


RunRow = _table("RunRow", UsageRow)
"""A row of ``--csv``."""
LinkCsvRow = _table("LinkCsvRow", LinkRow)
"""A row of ``--csv-links``: traffic of a link in one direction during a row of the table. In a run without rows, only
the columns of the system, the time and the link have values."""


class WholeRun(UsageRow):
    """Machine usage of the whole run, if there are no counters per row; the run counts as one iteration."""

    time_ns: Annotated[float, simulated_time("The end of the last event of all SIPs, in ns.")]
    time_ps: Annotated[int, simulated_time("The same as time_ns, in ps.")]


class LaunchRow(Struct):
    """A launch of kernels on one rank."""

    name: Annotated[str, no_time("The collective, or the function of the kernels that torch.launch or a program ran.")]
    rank: Annotated[int, no_time("The SIP on which the launch ran.")]
    run: Annotated[
        int | None,
        no_time(
            "The index in runs of the collective or program; null for a torch.launch, or if not all ranks completed "
            "the collective."
        ),
    ]
    start_ns: Annotated[float, simulated_time("When the host had launched the kernels and the PEs were free, in ns.")]
    end_ns: Annotated[float, simulated_time("When the host knew that all kernels had ended, in ns.")]
    target_start_ns: Annotated[
        float | None,
        simulated_time("The common start time that IO_CPU set for all cubes, in ns; null if it set none."),
    ]
    kernels_start_ns: Annotated[float | None, simulated_time("When the first kernel started, in ns; null if none did.")]
    kernels_end_ns: Annotated[float | None, simulated_time("When the last kernel ended, in ns; null if none ran.")]
    late_by_ns: Annotated[float, simulated_time("Time from target_start_ns to the start of the latest kernel, in ns.")]
    pes: Annotated[str, no_time("The PEs or tiles on which the kernels ran.")]
    kernels: Annotated[int, no_time("The number of kernels.")]
    busy_ns: Annotated[
        dict[str, float],
        simulated_time("Time that kernels were busy with commands of each kind, summed over kernels, in ns."),
    ]


class ChannelCost(Struct):
    """A channel, and the host time that SIPs waited because of this channel."""

    name: Annotated[str, no_time("The channel, such as 0.E>1.W for the link from port E of SIP 0 to port W of SIP 1.")]
    wait_s: Annotated[float, host_time("How long SIPs waited because of the channel, summed over SIPs, in s.")]


class SyncTotals(Struct):
    """Totals of the synchronisation of SIPs."""

    reports: Annotated[int, no_time("Reports of SIPs to the broker; may differ from run to run.")] = 0
    grants: Annotated[int, no_time("Grants of the broker to SIPs; may differ from run to run.")] = 0
    mean_window_ps: Annotated[int, simulated_time("How far a grant let its SIP run, on average, in ps.")] = 0
    costliest_channels: Annotated[
        list[ChannelCost], no_time("The channels whose waits cost most host time, the costliest first.")
    ] = []


class WallTimes(Struct):
    """Wall times of the run on the host."""

    total: Annotated[float, host_time("From the start of the command to its end, in s.")] = 0.0
    startup: Annotated[float, host_time("From the start of the command until all SIPs had joined, in s.")] = 0.0
    simulate: Annotated[float, host_time("From the end of startup to the end of the simulation, in s.")] = 0.0


class ResultDocument(Struct, kw_only=True):
    """The document of ``--json``. If a run was refused, the keys of the system contain the values of flags, or null."""

    schema: Annotated[int, no_time("Version of this format; added keys do not change the version.")] = SCHEMA
    version: Annotated[str, no_time("The version of the simulator.")] = VERSION
    argv: Annotated[list[str], no_time("The command line.")]
    seed: Annotated[int | None, no_time("The seed of the data.")] = None
    digest: Annotated[
        str | None, no_time("SHA-256 over the system and its results; null unless every rank has run to its end.")
    ] = None
    config: Annotated[
        dict[str, Any] | None, no_time("The config with every flag applied; keys are explained in configs/*.yaml.")
    ] = None
    engine: Annotated[str | None, no_time("Where the SIPs ran, as --list engines names it.")] = None
    mail: Annotated[
        str | None, no_time("Transport of messages (--mail); null with --engine inproc, unless --mail is shuffled.")
    ] = None
    sips: Sips | None = None
    topology: Topology | None = None
    shape: Shape = None
    link: Link | None = None
    cubes: Cubes = None
    runs: Annotated[
        list[RunEntry],
        no_time(
            "The collectives that every rank of their group has completed, and programs of chips of tiles, in order."
        ),
    ] = []
    whole_run: Annotated[
        WholeRun | None, no_time("Machine usage of the whole run, if there are no counters per row; else null.")
    ] = None
    explain: Annotated[
        list[Explanation | None],
        no_time("Where the time of each row went, with --explain; for a run without rows, one entry for the run."),
    ] = []
    launches: Annotated[list[LaunchRow], no_time("Launches of kernels, rank by rank, in the order of their ends.")] = []
    ranks: Annotated[list[RankRow], no_time("The results of the ranks that have sent a result.")] = []
    second_pass: Annotated[
        SecondPassEntry | None,
        no_time(
            "Result of the second pass; null if there was none: with --no-verify-data, and on chips without a second "
            "pass."
        ),
    ] = None
    no_effect: Annotated[list[str], no_time("Config keys that files or flags changed without effect on this run.")] = []
    sync: Annotated[SyncTotals, no_time("Totals of the synchronisation of SIPs.")] = field(default_factory=SyncTotals)
    wall_s: Annotated[WallTimes, no_time("Wall times of the run on the host.")] = field(default_factory=WallTimes)
    status: Annotated[str, no_time("ok, failed or interrupted.")]
    error: Annotated[ErrorFacts | None, no_time("The failure; null if the run has not failed.")] = None


Bytes = Annotated[int, no_time("The size of the message in bytes.")]
Pair = Annotated[int, simulated_time("From tl.send to the return of tl.recv, as the sum of terms, in ps.")]
Simulated = Annotated[int, simulated_time("The simulated time of the same transfer, in ps.")]


class Heading(Struct, kw_only=True):
    """First keys of every document of ``ahbm-probe``: the probed system."""

    version: Annotated[str, no_time("The version of the simulator.")] = VERSION
    system: Annotated[str, no_time("The system in one line.")]
    buffer_kind: Annotated[str, no_time("The memory that holds the rings.")]
    credit_return_mode: Annotated[
        str, no_time("How credits return; if the config says auto, the mode of the probed pair.")
    ]
    hw_strict: Annotated[bool, no_time("Whether messages travel in flits of 64 B (config key hw_strict).")]


From = Annotated[list[int], no_time("SIP, cube and PE that send.")]
To = Annotated[list[int], no_time("SIP, cube and PE that receive.")]


class PairHeading(Heading, kw_only=True):
    """First keys of a document about one pair: the keys of ``Heading``, and the two PEs."""

    src: From = field(name="from")
    dst: To = field(name="to")


class TermRow(Struct):
    """One summand of a transfer's time."""

    part: Annotated[str, no_time("The step of the transfer to which the term belongs.")]
    kind: Annotated[str, no_time("The kind of component that takes the time, such as routers, wires or memory.")]
    what: Annotated[str, no_time("The component that takes the time.")]
    ps: Annotated[int, simulated_time("The time of the term, in ps.")]


class TransferSum(Struct):
    """The time of one transfer, as a sum of terms."""

    terms: Annotated[list[TermRow], no_time("The terms of the sum, in the order of the transfer.")]
    kinds: Annotated[
        dict[str, int],
        simulated_time("Time of the terms by kind, in ps; all terms of a credit or acknowledgement are one kind."),
    ]
    sum_ps: Annotated[int, simulated_time("The sum of the terms, in ps.")]
    simulated_ps: Annotated[
        int | None, simulated_time("The time of the same transfer from a simulation, in ps; null if not simulated.")
    ]


class TlbMisses(Struct):
    """Time that PE_MMU adds to the first send; all other sums assume that no TLB misses."""

    walk_ps: Annotated[int, simulated_time("Time of a page walk, which a TLB miss adds to a command, in ps.")]
    walks: Annotated[int, no_time("TLB misses of the first send; 0 if rings have no virtual addresses.")]
    sum_ps: Annotated[int, simulated_time("The time of these misses, in ps.")]
    simulated_ps: Annotated[int, simulated_time("The simulated time of these misses, in ps.")]


class ProbeDocument(PairHeading, kw_only=True):
    """The document of ``ahbm-probe --json`` for one transfer, also with ``--short``."""

    bytes: Bytes
    way: Annotated[str, no_time("The route as text: SIPs and links, or cubes if the route stays in one SIP.")]
    raw_dma: Annotated[TransferSum, no_time("A DMA write of the bytes, with its acknowledgement.")]
    pair: Annotated[TransferSum, no_time("The bytes from tl.send to the return of tl.recv.")]
    overhead_ps: Annotated[int, simulated_time("The sum of pair minus the sum of raw_dma, in ps.")]
    tlb_misses: Annotated[
        TlbMisses | UnsetType, no_time("Time that TLB misses add to the first send; only if PEs have an MMU (pe_mmu).")
    ] = UNSET


class SizePoint(Struct):
    """One simulated size of a sweep. The interval keys are left out if the size needs several messages."""

    bytes: Annotated[int, no_time("The size in bytes.")]
    messages: Annotated[int, no_time("The number of messages, sent back to back; all but the last one fill a slot.")]
    time_ps: Annotated[int, simulated_time("From the first tl.send to the return of the last tl.recv, in ps.")]
    GBps: Annotated[float, simulated_time("bytes / time_ps, in 1e9 bytes per simulated second.")]
    interval_ps: Annotated[
        float | UnsetType,
        simulated_time("The time between messages of this size that are sent back to back, in ps."),
    ] = UNSET
    interval_GBps: Annotated[
        float | UnsetType, simulated_time("bytes / interval_ps, in 1e9 bytes per simulated second.")
    ] = UNSET


class OneMessage(Struct):
    """Model of the time of one message of ``n`` bytes: ``t0 + n / r_inf``."""

    t0_ps: Annotated[int, simulated_time("The time of a message of 0 bytes, in ps.")]
    r_inf_GBps: Annotated[
        float, simulated_time("The asymptotic rate for large messages, in 1e9 bytes per simulated second.")
    ]
    half_bytes: Annotated[int, no_time("The size of a message that reaches half of r_inf_GBps, in bytes.")]
    bounded_by: Annotated[str, no_time("The edge that bounds the rate, and its bandwidth.")]
    off_ps: Annotated[int, simulated_time("The largest difference between a simulated size and the model, in ps.")]


class BoundRow(Struct):
    """Bound on the rate of messages: a resource that each message occupies for a time."""

    what: Annotated[str, no_time("The resource.")]
    ps: Annotated[float, simulated_time("How long each message occupies the resource, in ps.")]


class OneAfterAnother(Struct):
    """Rate of messages that are sent back to back, and bounds on this rate."""

    bytes: Annotated[int, no_time("The size of each message in bytes: the largest size of one message.")]
    interval_ps: Annotated[float, simulated_time("The time between messages, in ps.")]
    GBps: Annotated[float, simulated_time("bytes / interval_ps, in 1e9 bytes per simulated second.")]
    bounds: Annotated[list[BoundRow], no_time("Resources that each message occupies; the longest time decides.")]
    bounded_by: Annotated[str, no_time("The resource with the longest time.")]
    off_ps: Annotated[float, simulated_time("interval_ps minus the longest time, in ps.")]


class SweepDocument(PairHeading, kw_only=True):
    """The document of ``ahbm-probe --sweep-bytes --json``: the bandwidth of each size, and the bounds of the rates."""

    slot_size: Annotated[int, no_time("The size of a slot in bytes; larger sizes are sent as several messages.")]
    sizes: Annotated[list[SizePoint], no_time("The sizes, in ascending order.")]
    one_message: Annotated[
        OneMessage | UnsetType, no_time("The model of one message; only if some sizes are one message each.")
    ] = UNSET
    one_after_another: Annotated[
        OneAfterAnother | UnsetType,
        no_time("The rate of back-to-back messages; only if some sizes are one message each."),
    ] = UNSET


class MatrixFacts(Struct):
    """Matrix of transfer times, from the PE of each row to the PE of each column."""

    title: Annotated[str, no_time("The meaning of rows and columns.")]
    rows: Annotated[list[list[int]], no_time("SIP, cube and PE that send, one per row.")]
    columns: Annotated[list[list[int]], no_time("SIP, cube and PE that receive, one per column.")]
    ps: Annotated[
        list[list[int | None]],
        simulated_time("Row by row, from tl.send to the return of tl.recv in ps; null from a PE to itself."),
    ]


class CheckedPair(Struct):
    """A pair of a matrix, with the time by terms and the simulated time."""

    src: From = field(name="from")
    dst: To = field(name="to")
    ps: Pair
    simulated_ps: Simulated


class MatrixDocument(Heading, kw_only=True):
    """The document of ``ahbm-probe --matrix --json``."""

    bytes: Bytes
    matrix: Annotated[str, no_time("The value of --matrix: sips or cubes.")]
    matrices: Annotated[list[MatrixFacts], no_time("The times of all pairs.")]
    checked: Annotated[list[CheckedPair], no_time("The fastest and the slowest pair, also simulated.")]


class MatrixRow(Struct):
    """A row of ``ahbm-probe --matrix --csv``: one pair."""

    src: Annotated[str, no_time("The PE that sends, as SIP.CUBE.PE.")] = field(name="from")
    dst: Annotated[str, no_time("The PE that receives, as SIP.CUBE.PE.")] = field(name="to")
    ps: Pair


class RegisterRow(Struct):
    """A register of one direction of PE_IPCQ."""

    name: Annotated[str, no_time("The register.")]
    bits: Annotated[int, no_time("Its width in bits.")]
    meaning: Annotated[str, no_time("Its content.")]


class RegisterFileRow(Struct):
    """The registers of all directions of a PE, and the receive rings of these directions."""

    of: Annotated[
        str, no_time("The directions: installed by the wiring, or those that the register file is built for.")
    ]
    directions: Annotated[int, no_time("The number of directions.")]
    register_bytes: Annotated[int, no_time("Bytes of the registers.")]
    n_slots: Annotated[int, no_time("Slots of a ring.")]
    slot_size: Annotated[int, no_time("Bytes of a slot.")]
    ring_bytes: Annotated[int, no_time("Bytes of the receive rings.")]
    of_region: Annotated[float, no_time("ring_bytes as a fraction of region_bytes; above 1 the rings do not fit.")]
    of_tcm: Annotated[float, no_time("Fraction of the TCM that the rings take; 0 for rings in another memory.")]


class ModuleRow(Struct):
    """Estimate of a module of the controller, in 2 nm. It changes no simulated time and no result."""

    module: Annotated[str, no_time("The module, or a sum of modules.")]
    unit: Annotated[str, no_time("The unit of both counts: FF (flip-flops), gates, or FF and gates.")]
    count: Annotated[int, no_time("Flip-flops and gates for the directions that the wiring installs.")]
    mm2: Annotated[float, no_time("Area for these directions, in mm2.")]
    built_count: Annotated[int, no_time("Flip-flops and gates for the directions that the register file is built for.")]
    built_mm2: Annotated[float, no_time("Area for these directions, in mm2.")]
    scales: Annotated[bool, no_time("Whether the module, or a part of the sum, scales with the number of directions.")]
    source: Annotated[str, no_time("The source of the estimate.")]


class DelayRow(Struct):
    """Estimate of the delay of a path of the controller, in 2 nm. It changes no simulated time and no result."""

    path: Annotated[str, no_time("The path.")]
    ns: Annotated[float, no_time("The estimated delay in ns, for the directions that the register file is built for.")]
    margin: Annotated[float, no_time("The period of the PE's clock divided by the delay.")]
    source: Annotated[str, no_time("The source of the estimate.")]


class StepRow(Struct):
    """A step of the controller: its latency in the record, and in the simulation."""

    step: Annotated[str, no_time("The step.")]
    cycles: Annotated[list[int], no_time("The least and the greatest number of cycles in the record.")]
    charged_ps: Annotated[int, simulated_time("The time that the simulation charges for the step, in ps.")]
    charged_by: Annotated[str, no_time("The key and the pass that are charged, or the reason why none is.")]
    source: Annotated[str, no_time("The source of the cycles.")]


class HardwareDocument(Heading, kw_only=True):
    """The document of ``ahbm-probe --hardware --json``."""

    algorithm: Annotated[str, no_time("The algorithm whose wiring installs directions.")]
    pe: Annotated[list[int], no_time("SIP, cube and PE of the PE with the most directions, the first of equal PEs.")]
    directions: Annotated[list[str], no_time("The directions that the wiring installs on this PE.")]
    registers: Annotated[list[RegisterRow], no_time("The registers of a direction.")]
    register_bytes: Annotated[int, no_time("Bytes of the registers of a direction.")]
    region: Annotated[str, no_time("The memory that holds the rings, and the key of its size.")]
    region_bytes: Annotated[int, no_time("Bytes of a PE in that memory for rings.")]
    tcm_bytes: Annotated[int, no_time("Bytes of the TCM.")]
    files: Annotated[list[RegisterFileRow], no_time("For the installed directions, and for a full register file.")]
    modules: Annotated[list[ModuleRow], no_time("Estimates of area, and their sums.")]
    clock_ps: Annotated[float, simulated_time("The period of the PE's clock, in ps (pe_gemm.clock_GHz).")]
    delays: Annotated[list[DelayRow], no_time("Estimates of delays.")]
    active_mW: Annotated[float, no_time("Estimated power of the controller while it sends or receives, in mW.")]
    steps: Annotated[list[StepRow], no_time("The steps of the controller.")]
