"""The result document of ``--json`` and the rows of ``--csv``: every key with its meaning."""

from typing import Annotated, Any, TypedDict

from launcher.report.checks.second_pass import SecondPassEntry
from launcher.report.outcome.error_facts import ErrorFacts
from launcher.result.fields.usage_fields import LinkRow, UsageColumns, UsageRow
from sipsim.core.fields import host_time, no_time, simulated_time
from sipsim.records.explanation import Explanation
from sipsim.records.job import RankResult

Sips = Annotated[int, no_time("Number of SIPs.")]
Topology = Annotated[str, no_time("How the SIPs are joined, as --list topologies names it.")]
Shape = Annotated[str | None, no_time("Width and height of the grid of SIPs, such as 3x2; null for other topologies.")]
Link = Annotated[str, no_time("The presets of the links between SIPs, joined by commas where there are several.")]
Cubes = Annotated[int | None, no_time("Cubes of a SIP; null for a chip without cubes.")]


ROW_START, WITH_OUTAGES, AS_LEFT = "row start", "row start, outages as timed", "as the script left it"
"""States of the machine at the start of a row."""


class Measured(TypedDict):
    """A collective that every rank of its group has completed.

    Its keys say all of the system that the usual flags choose, so that rows of several files can stand in one table.
    """

    sips: Sips
    topology: Topology
    shape: Shape
    link: Link
    cubes: Cubes
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


class Begun(TypedDict):
    """Under which conditions a row was measured, and how far its iterations differ."""

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
            f"The machine at the row's start: {ROW_START}: as at time 0; {WITH_OUTAGES}: so, but for outages of links, "
            f"at the times of the run; {AS_LEFT}: with what was before, as outside of torch.ahbm.row."
        ),
    ]
    time_min_ns: Annotated[float, simulated_time("The shortest iteration, in ns.")]
    time_median_ns: Annotated[float, simulated_time("The median of the iterations, in ns.")]
    time_max_ns: Annotated[float, simulated_time("The longest iteration, in ns.")]


class RunRow(Measured, UsageColumns, Begun):
    """A row of ``--csv``."""


class RunEntry(RunRow, UsageRow):
    """An entry of ``runs``: a row of ``--csv``, and what has no place in a table."""

    time_ps: Annotated[int, simulated_time("The same as time_ns, in whole ps.")]


class LinkCsvRow(Measured, LinkRow, Begun):
    """A row of ``--csv-links``: what crosses a link, one way, in a row of the table; of a whole run without rows only
    the keys of the system, the time and the link's have a value.
    """


class WholeRun(UsageRow):
    """The use of the machine in a run whose rows were not counted apart, with the run as its one iteration."""

    time_ns: Annotated[float, simulated_time("The end of the last event of all SIPs, in ns.")]
    time_ps: Annotated[int, simulated_time("The same, in ps.")]


class LaunchRow(TypedDict):
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


class RankRow(RankResult, frozen=True, kw_only=True):
    """An entry of ``ranks``."""

    restarts: Annotated[int, no_time("How often the rank's process was started again.")]


class ChannelCost(TypedDict):
    """A channel, and what waiting for it has cost."""

    name: Annotated[str, no_time("The channel, such as 0.E>1.W for the link from port E of SIP 0 to port W of SIP 1.")]
    wait_s: Annotated[float, host_time("How long SIPs waited because of the channel, all together, in s.")]


class SyncTotals(TypedDict):
    """What the synchronisation has done."""

    reports: Annotated[int, no_time("Reports of SIPs to the broker; may differ from run to run.")]
    grants: Annotated[int, no_time("Grants of the broker to SIPs; may differ from run to run.")]
    mean_window_ps: Annotated[int, simulated_time("How far a grant let its SIP run, on average, in ps.")]
    costliest_channels: Annotated[list[ChannelCost], no_time("The channels whose waits cost most, the worst first.")]


class WallTimes(TypedDict):
    """What the run has taken on the host."""

    total: Annotated[float, host_time("From the start of the command to its end, in s.")]
    startup: Annotated[float, host_time("From the start of the command until all SIPs had joined, in s.")]
    simulate: Annotated[float, host_time("From then to the end of the simulation, in s.")]


class ResultDocument(TypedDict):
    """What ``--json`` writes. Of a refused run the keys of the system are what the flags say, or null."""

    schema: Annotated[int, no_time("Version of this format; keys may be added without another number.")]
    version: Annotated[str, no_time("The version of the simulator.")]
    argv: Annotated[list[str], no_time("The command line.")]
    seed: Annotated[int | None, no_time("The seed of the data.")]
    digest: Annotated[
        str | None, no_time("SHA-256 over the system and its results; null unless every rank has run to its end.")
    ]
    config: Annotated[
        dict[str, Any] | None, no_time("The config with every flag applied; its keys are explained in configs/*.yaml.")
    ]
    engine: Annotated[str | None, no_time("Where the SIPs ran, as --list engines names it.")]
    mail: Annotated[str | None, no_time("How messages travelled; null with --engine inproc, but for shuffled:SEED.")]
    sips: Sips | None
    topology: Topology | None
    shape: Shape
    link: Link | None
    cubes: Cubes
    runs: Annotated[list[RunEntry], no_time("The collectives that every rank of their group has completed, in order.")]
    whole_run: Annotated[WholeRun | None, no_time("The use of the machine in the whole run, where rows have none.")]
    explain: Annotated[
        list[Explanation | None],
        no_time("Where the time of each row went, with --explain; of a run without rows, one."),
    ]
    launches: Annotated[list[LaunchRow], no_time("What ran on the PEs, rank by rank, in the order of ends.")]
    ranks: Annotated[list[RankRow], no_time("The ranks that have sent their result.")]
    second_pass: Annotated[
        SecondPassEntry | None,
        no_time(
            "What the second pass has found; null where nothing was performed again: with --no-verify-data, and on "
            "chips without one."
        ),
    ]
    no_effect: Annotated[list[str], no_time("The keys that files or flags changed and no part that ran has read.")]
    sync: Annotated[SyncTotals, no_time("What the synchronisation of SIPs has done.")]
    wall_s: Annotated[WallTimes, no_time("What the run has taken on the host.")]
    status: Annotated[str, no_time("ok, failed or interrupted.")]
    error: Annotated[ErrorFacts | None, no_time("The failure; null without one.")]
