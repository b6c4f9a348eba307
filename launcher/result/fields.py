"""Every key and column of result files, with its meaning: of ``ahbm-launch`` and of ``ahbm-probe``."""

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
    """What crosses a link, one way."""

    name: Annotated[str, no_time("The link, such as 0.E>1.W from port E of SIP 0 to port W of SIP 1.")]
    frames: Annotated[float, no_time("Messages, and credits that travel as messages, an iteration.")]
    payload_bytes: Annotated[float, no_time("Bytes of data in them, an iteration.")]
    credit_bytes: Annotated[
        float, no_time("Bytes of frames without data, such as credits, before framing, an iteration.")
    ]
    wire_bytes: Annotated[float, no_time("Bytes on the wire an iteration: data, credits, and the framing of the link.")]
    busy_ps: Annotated[int, simulated_time("How long these bytes keep the link busy, an iteration, in ps.")]
    utilisation: Annotated[float, no_time("That time as a part of the row's time.")]


class TlbRow(Struct):
    """The TLB of a PE."""

    pe: Annotated[str, no_time("The PE, such as sip0.cube0.pe0.")]
    hits: Annotated[float, no_time("Pages that commands touched and whose translation was there, an iteration.")]
    misses: Annotated[float, no_time("Pages for which the page table was walked, an iteration.")]


class EngineRow(Struct):
    """The engines of the PEs that multiplied."""

    pes: Annotated[int, no_time("The number of these PEs.")]
    busy: Annotated[
        dict[str, float], no_time("How much of the time of their kernels each engine was busy, from 0 to 1.")
    ]
    peak: Annotated[
        float, no_time("The part of that time that the multiplications take if every cell works in every cycle.")
    ]
    commands: Annotated[
        dict[str, float], no_time("Parts of the time of PE_GEMM's commands by what it went to; hidden work is in none.")
    ]


class StackRow(Struct):
    """The stack of HBM that moved most bytes, where its rate is near the limit of the PEs that use it."""

    name: Annotated[str, no_time("The cube, such as sip0.cube0.")]
    GBps: Annotated[float, simulated_time("Bytes through its ports by the time, in 1e9 bytes a simulated second.")]
    published_GBps: Annotated[float, simulated_time("The bandwidth that the stack publishes.")]
    bound_GBps: Annotated[float, simulated_time("The most that the PEs whose slices were used can get.")]
    bound: Annotated[str, no_time("What sets that limit, such as 8 ports of PE_DMA.")]
    keys: Annotated[list[str], no_time("The config keys that set that limit.")]


class UsageRow(Struct, kw_only=True):
    """The use of the machine in a row, by counters; null where rows were not counted apart, as in a script."""

    link_payload_bytes: Annotated[float | None, no_time("Bytes of data over all links together, an iteration.")] = None
    link_wire_bytes: Annotated[float | None, no_time("Bytes on the wires of all links an iteration, with framing.")] = (
        None
    )
    busiest_link: Annotated[str | None, no_time("The link that was busy longest; null where none was used.")] = None
    busiest_link_payload_bytes: Annotated[float | None, no_time("Bytes of data over that link, an iteration.")] = None
    busiest_link_wire_bytes: Annotated[float | None, no_time("Bytes on its wire, framing included, an iteration.")] = (
        None
    )
    busiest_link_utilisation: Annotated[
        float | None, no_time("How much of the row's time it was busy, from 0 to 1.")
    ] = None
    busiest_edge: Annotated[str | None, no_time("The edge inside a SIP that was busy longest.")] = None
    busiest_edge_utilisation: Annotated[
        float | None, no_time("How much of the row's time it was busy, from 0 to 1.")
    ] = None
    kernels: Annotated[int | None, no_time("Kernels that ran, an iteration.")] = None
    links: Annotated[list[LinkRow] | None, no_time("What crosses each link of the system, one way each.")] = None
    kernel_time: Annotated[
        dict[str, float] | None,
        no_time("Parts of the kernels' time by the command that they waited for; ended: after their end."),
    ] = None
    tlbs: Annotated[
        list[TlbRow], no_time("Lookups of each TLB that was used; none where PEs have no MMU (pe_mmu).")
    ] = []
    engines: Annotated[EngineRow | None, no_time("Engines of the PEs that multiplied; null where none did.")] = None
    stack: Annotated[
        StackRow | UnsetType, no_time("The HBM that moved most bytes; only where it is near what binds it.")
    ] = UNSET


Sips = Annotated[int, no_time("Number of SIPs.")]
Topology = Annotated[str, no_time("How the SIPs are joined, as --list topologies names it.")]
Shape = Annotated[str | None, no_time("Width and height of the grid of SIPs, such as 3x2; null for other topologies.")]
Link = Annotated[str, no_time("The presets of the links between SIPs, joined by commas where there are several.")]
Cubes = Annotated[int | None, no_time("Cubes of a SIP; null for a chip without cubes.")]


ROW_START, WITH_OUTAGES, AS_LEFT = "row start", "row start, outages as timed", "as the script left it"
"""States of the machine at the start of a row."""


class RunEntry(UsageRow):
    """A collective that every rank of its group has completed: an entry of ``runs``.

    Its keys say all of the system that the usual flags choose, so that rows of several files can stand in one table;
    under which conditions it was measured; and how far its iterations differ.
    """

    sips: Sips
    topology: Topology
    shape: Shape
    link: Link
    cubes: Cubes
    settings: Annotated[
        str,
        no_time(
            "What the config has besides the defaults, the algorithm aside: key=value, as --set takes each, separated "
            "by ;, in the order of the config files; empty for the defaults."
        ),
    ]
    row: Annotated[
        str | None, no_time("The name of the script's row, as torch.ahbm.row was given it; null outside of one.")
    ]
    state: Annotated[
        str,
        no_time(
            f"The machine at the row's start: {ROW_START}: as at time 0; {WITH_OUTAGES}: as at time 0, but with the "
            f"outages of links at the times of the run; {AS_LEFT}: as earlier work left it, outside of torch.ahbm.row."
        ),
    ]
    collective: Annotated[str, no_time("The collective, as --list collectives names it.")]
    algorithm: Annotated[str, no_time("The algorithm, as --list algorithms names it.")]
    dtype: Annotated[str, no_time("The type of an element.")]
    op: Annotated[str, no_time("The operator; none for a collective that only moves data.")]
    count: Annotated[int, no_time("Elements of a rank's larger tensor.")]
    bytes: Annotated[int, no_time("Size of that tensor in bytes.")]
    iters: Annotated[int, no_time("Timed iterations.")]
    time_ns: Annotated[
        float, simulated_time("From the first start to the last end on any rank, the mean of the iterations, in ns.")
    ]
    time_ps: Annotated[int, simulated_time("The same as time_ns, in whole ps.")]
    time_min_ns: Annotated[float, simulated_time("The shortest iteration, in ns.")]
    time_median_ns: Annotated[float, simulated_time("The median of the iterations, in ns.")]
    time_max_ns: Annotated[float, simulated_time("The longest iteration, in ns.")]
    launch_ns: Annotated[
        float,
        simulated_time(
            "How much of time_ns is before the first kernel starts and after the last one ends: launch, start skew, "
            "and the way of the end to the host, in ns."
        ),
    ]
    algbw_GBps: Annotated[
        float, simulated_time("Algorithm bandwidth: bytes by time_ns, in 1e9 bytes a simulated second.")
    ]
    busbw_GBps: Annotated[
        float, simulated_time("Bus bandwidth: algbw_GBps by the collective's factor, as in nccl-tests.")
    ]
    wrong: Annotated[int, no_time("Wrong elements of all ranks and iterations; 0 also where none was checked.")]
    checked: Annotated[bool, no_time("Whether every rank's result was checked.")]
    group: Annotated[
        list[int], no_time("The ranks of the collective's group, in its order; in --csv separated by spaces.")
    ]


_NO_COLUMNS = ("time_ps", "links", "kernel_time", "tlbs", "engines", "stack")
"""Keys of an entry that have no place in a table."""
_LAST_COLUMNS = ("settings", "row", "state", "time_min_ns", "time_median_ns", "time_max_ns")


def _table(name: str, own: type) -> type[Struct]:
    """A row of a table: what was measured, the columns of ``own``, and the conditions."""
    entry, columns = (get_type_hints(each, include_extras=True) for each in (RunEntry, own))
    measured = [key for key in RunEntry.__annotations__ if key not in (*_LAST_COLUMNS, *_NO_COLUMNS)]
    fields = {key: entry[key] for key in measured}
    fields |= {key: hint for key, hint in columns.items() if key not in _NO_COLUMNS}
    return defstruct(name, [*fields.items(), *((key, entry[key]) for key in _LAST_COLUMNS)])


RunRow = _table("RunRow", UsageRow)
"""A row of ``--csv``."""
LinkCsvRow = _table("LinkCsvRow", LinkRow)
"""A row of ``--csv-links``: what crosses a link, one way, in a row of the table. For a whole run without rows, only the
columns of the system, the time and the link have a value."""


class WholeRun(UsageRow):
    """The use of the machine in a run whose rows were not counted apart, with the run as its one iteration."""

    time_ns: Annotated[float, simulated_time("The end of the last event of all SIPs, in ns.")]
    time_ps: Annotated[int, simulated_time("The same, in ps.")]


class LaunchRow(Struct):
    """A launch on one rank."""

    name: Annotated[str, no_time("The collective, or the name of the function that torch.launch ran.")]
    rank: Annotated[int, no_time("The SIP on which it ran.")]
    run: Annotated[
        int | None,
        no_time(
            "The collective's index in runs; null for one of torch.launch, or one that has not ended on all ranks."
        ),
    ]
    start_ns: Annotated[float, simulated_time("When the host launched it and its PEs were free, in ns.")]
    end_ns: Annotated[float, simulated_time("When the host knew that all its kernels had ended, in ns.")]
    target_start_ns: Annotated[
        float | None,
        simulated_time("The start that IO_CPU stamped for all cubes, in ns; null where kernels start at once."),
    ]
    kernels_start_ns: Annotated[float | None, simulated_time("When its first kernel started, in ns; null without one.")]
    kernels_end_ns: Annotated[float | None, simulated_time("When its last kernel ended, in ns; null without one.")]
    late_by_ns: Annotated[
        float, simulated_time("By how much its latest kernel started after the time that IO_CPU had stamped, in ns.")
    ]
    pes: Annotated[str, no_time("The PEs on which it ran.")]
    kernels: Annotated[int, no_time("Their number.")]
    busy_ns: Annotated[
        dict[str, float],
        simulated_time("How long its kernels were busy with commands of each kind, all together, in ns."),
    ]


class ChannelCost(Struct):
    """A channel, and what waiting for it has cost."""

    name: Annotated[str, no_time("The channel, such as 0.E>1.W for the link from port E of SIP 0 to port W of SIP 1.")]
    wait_s: Annotated[float, host_time("How long SIPs waited because of the channel, all together, in s.")]


class SyncTotals(Struct):
    """What the synchronisation has done."""

    reports: Annotated[int, no_time("Reports of SIPs to the broker; may differ from run to run.")] = 0
    grants: Annotated[int, no_time("Grants of the broker to SIPs; may differ from run to run.")] = 0
    mean_window_ps: Annotated[int, simulated_time("How far a grant let its SIP run, on average, in ps.")] = 0
    costliest_channels: Annotated[
        list[ChannelCost], no_time("The channels whose waits cost most, the worst first.")
    ] = []


class WallTimes(Struct):
    """What the run has taken on the host."""

    total: Annotated[float, host_time("From the start of the command to its end, in s.")] = 0.0
    startup: Annotated[float, host_time("From the start of the command until all SIPs had joined, in s.")] = 0.0
    simulate: Annotated[float, host_time("From then to the end of the simulation, in s.")] = 0.0


class ResultDocument(Struct, kw_only=True):
    """The document that ``--json`` writes. If a run was refused, the keys of the system hold its flags, or null."""

    schema: Annotated[int, no_time("Version of this format; keys may be added without another number.")] = SCHEMA
    version: Annotated[str, no_time("The version of the simulator.")] = VERSION
    argv: Annotated[list[str], no_time("The command line.")]
    seed: Annotated[int | None, no_time("The seed of the data.")] = None
    digest: Annotated[
        str | None, no_time("SHA-256 over the system and its results; null unless every rank has run to its end.")
    ] = None
    config: Annotated[
        dict[str, Any] | None, no_time("The config with every flag applied; its keys are explained in configs/*.yaml.")
    ] = None
    engine: Annotated[str | None, no_time("Where the SIPs ran, as --list engines names it.")] = None
    mail: Annotated[
        str | None, no_time("How messages travelled; null with --engine inproc, but for shuffled:SEED.")
    ] = None
    sips: Sips | None = None
    topology: Topology | None = None
    shape: Shape = None
    link: Link | None = None
    cubes: Cubes = None
    runs: Annotated[
        list[RunEntry], no_time("The collectives that every rank of their group has completed, in order.")
    ] = []
    whole_run: Annotated[WholeRun | None, no_time("The use of the machine in the whole run, where rows have none.")] = (
        None
    )
    explain: Annotated[
        list[Explanation | None],
        no_time("Where the time of each row went, with --explain; of a run without rows, one."),
    ] = []
    launches: Annotated[list[LaunchRow], no_time("What ran on the PEs, rank by rank, in the order of ends.")] = []
    ranks: Annotated[list[RankRow], no_time("The ranks that have sent their result.")] = []
    second_pass: Annotated[
        SecondPassEntry | None,
        no_time(
            "What the second pass has found; null where nothing was performed again: with --no-verify-data, and on "
            "chips without one."
        ),
    ] = None
    no_effect: Annotated[list[str], no_time("The keys that files or flags changed and no part that ran has read.")] = []
    sync: Annotated[SyncTotals, no_time("What the synchronisation of SIPs has done.")] = field(
        default_factory=SyncTotals
    )
    wall_s: Annotated[WallTimes, no_time("What the run has taken on the host.")] = field(default_factory=WallTimes)
    status: Annotated[str, no_time("ok, failed or interrupted.")]
    error: Annotated[ErrorFacts | None, no_time("The failure; null without one.")] = None


Bytes = Annotated[int, no_time("The size of the message in bytes.")]
Pair = Annotated[int, simulated_time("From tl.send to the return of tl.recv by the terms' sum, in ps.")]
Simulated = Annotated[int, simulated_time("The same, when it was simulated, in ps.")]


class Heading(Struct, kw_only=True):
    """What every document begins with: the system that was probed."""

    version: Annotated[str, no_time("The version of the simulator.")] = VERSION
    system: Annotated[str, no_time("The system in one line.")]
    buffer_kind: Annotated[str, no_time("The memory that holds the rings.")]
    credit_return_mode: Annotated[str, no_time("How credits return; under auto, those of the pair that is probed.")]
    hw_strict: Annotated[bool, no_time("Whether messages travel in flits of 64 B, as hw_strict says.")]


From = Annotated[list[int], no_time("SIP, cube and PE that send.")]
To = Annotated[list[int], no_time("SIP, cube and PE that receive.")]


class PairHeading(Heading, kw_only=True):
    """The first keys of a document about one pair: those of ``Heading``, and the two PEs."""

    src: From = field(name="from")
    dst: To = field(name="to")


class TermRow(Struct):
    """One summand of a transfer's time."""

    part: Annotated[str, no_time("The step of the transfer to which the term belongs.")]
    kind: Annotated[str, no_time("What kind of thing takes the time, such as routers, wires or memory.")]
    what: Annotated[str, no_time("What takes the time.")]
    ps: Annotated[int, simulated_time("The time that it takes, in ps.")]


class TransferSum(Struct):
    """The time of one transfer."""

    terms: Annotated[list[TermRow], no_time("The terms of the sum, in the order of the transfer.")]
    kinds: Annotated[
        dict[str, int],
        simulated_time("The terms' time by their kind, in ps; all of a credit or an acknowledgement is one kind."),
    ]
    sum_ps: Annotated[int, simulated_time("The sum of the terms, in ps.")]
    simulated_ps: Annotated[
        int | None, simulated_time("The time of the same transfer when it was simulated, in ps; null if it was not.")
    ]


class TlbMisses(Struct):
    """What PE_MMU adds to the first send; the sums are those of TLBs that hold the pages."""

    walk_ps: Annotated[int, simulated_time("What a TLB miss adds to a command, in ps: a page walk.")]
    walks: Annotated[int, no_time("Misses of the first send; none where rings have no virtual addresses.")]
    sum_ps: Annotated[int, simulated_time("The time of these misses, in ps.")]
    simulated_ps: Annotated[int, simulated_time("The same, when it was simulated, in ps.")]


class ProbeDocument(PairHeading, kw_only=True):
    """What ``ahbm-probe --json`` writes of one transfer, with ``--short`` too."""

    bytes: Bytes
    way: Annotated[str, no_time("The SIPs and links of the route in words, or its cubes where it stays in one SIP.")]
    raw_dma: Annotated[TransferSum, no_time("A DMA write of the bytes, with its acknowledgement.")]
    pair: Annotated[TransferSum, no_time("The bytes from tl.send to the return of tl.recv.")]
    overhead_ps: Annotated[int, simulated_time("The pair's sum less the raw DMA's, in ps.")]
    tlb_misses: Annotated[
        TlbMisses | UnsetType, no_time("What TLB misses add to the first send; only where PEs have an MMU (pe_mmu).")
    ] = UNSET


class SizePoint(Struct):
    """One simulated size of a sweep. A size that is sent as several messages has no interval."""

    bytes: Annotated[int, no_time("The size in bytes.")]
    messages: Annotated[int, no_time("How many messages it is sent as, of a slot each, one right after the other.")]
    time_ps: Annotated[int, simulated_time("From the first tl.send to the return of the last tl.recv, in ps.")]
    GBps: Annotated[float, simulated_time("bytes by time_ps, in 1e9 bytes a simulated second.")]
    interval_ps: Annotated[
        float | UnsetType,
        simulated_time("The time between messages of this size that are sent one after another, in ps."),
    ] = UNSET
    interval_GBps: Annotated[
        float | UnsetType, simulated_time("bytes by interval_ps, in 1e9 bytes a simulated second.")
    ] = UNSET


class OneMessage(Struct):
    """The model of one message: ``t0 + n / r_inf``."""

    t0_ps: Annotated[int, simulated_time("The time of a message of no bytes, in ps.")]
    r_inf_GBps: Annotated[
        float, simulated_time("The rate of a message of endless bytes, in 1e9 bytes a simulated second.")
    ]
    half_bytes: Annotated[int, no_time("The size that has half of that rate, in bytes.")]
    bounded_by: Annotated[str, no_time("The edge that bounds the rate, and its bandwidth.")]
    off_ps: Annotated[int, simulated_time("By how much a simulated size differs from the model at most, in ps.")]


class BoundRow(Struct):
    """A bound on the rate of messages: something that each message occupies for a time."""

    what: Annotated[str, no_time("What each message occupies.")]
    ps: Annotated[float, simulated_time("How long each message occupies it, in ps.")]


class OneAfterAnother(Struct):
    """The rate of messages one after another, and what bounds it."""

    bytes: Annotated[int, no_time("The size of each message in bytes: the largest size of one message.")]
    interval_ps: Annotated[float, simulated_time("The time between messages, in ps.")]
    GBps: Annotated[float, simulated_time("bytes by interval_ps, in 1e9 bytes a simulated second.")]
    bounds: Annotated[list[BoundRow], no_time("What each message needs for itself; the longest decides.")]
    bounded_by: Annotated[str, no_time("The bound that is longest.")]
    off_ps: Annotated[float, simulated_time("The time between messages less that bound, in ps.")]


class SweepDocument(PairHeading, kw_only=True):
    """The document of ``ahbm-probe --sweep-bytes --json``: the curve, and the bounds of its two rates."""

    slot_size: Annotated[int, no_time("The size of a slot in bytes; a larger size is sent as messages of it.")]
    sizes: Annotated[list[SizePoint], no_time("The sizes, from the least.")]
    one_message: Annotated[OneMessage | UnsetType, no_time("The model of one message; with sizes of one message.")] = (
        UNSET
    )
    one_after_another: Annotated[
        OneAfterAnother | UnsetType, no_time("The rate of messages one after another; with sizes of one message.")
    ] = UNSET


class MatrixFacts(Struct):
    """The times from the PEs of the rows to those of the columns."""

    title: Annotated[str, no_time("What its rows and columns are.")]
    rows: Annotated[list[list[int]], no_time("SIP, cube and PE that send, a row each.")]
    columns: Annotated[list[list[int]], no_time("SIP, cube and PE that receive, a column each.")]
    ps: Annotated[
        list[list[int | None]],
        simulated_time("Row by row, from tl.send to the return of tl.recv in ps; null from a PE to itself."),
    ]


class CheckedPair(Struct):
    """A pair of a matrix that was simulated too."""

    src: From = field(name="from")
    dst: To = field(name="to")
    ps: Pair
    simulated_ps: Simulated


class MatrixDocument(Heading, kw_only=True):
    """What ``ahbm-probe --matrix --json`` writes."""

    bytes: Bytes
    matrix: Annotated[str, no_time("What was asked for: sips or cubes.")]
    matrices: Annotated[list[MatrixFacts], no_time("The times of all pairs.")]
    checked: Annotated[list[CheckedPair], no_time("The fastest and the slowest pair, simulated too.")]


class MatrixRow(Struct):
    """A row of ``--csv``: one pair."""

    src: Annotated[str, no_time("The PE that sends, as SIP.CUBE.PE.")] = field(name="from")
    dst: Annotated[str, no_time("The PE that receives, as SIP.CUBE.PE.")] = field(name="to")
    ps: Pair
