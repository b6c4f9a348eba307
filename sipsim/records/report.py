"""The report of a rank: its runs, usage counters of its SIP, launches, and CPU time and memory of the process.

The report is plain data, part of a rank's outcome. No simulated result depends on CPU time or memory.
"""

import time
from collections.abc import Iterable, Mapping
from itertools import groupby
from pathlib import Path
from typing import Annotated, Any, NamedTuple, TypeVar

import msgspec
from msgspec.structs import astuple

from broker.wire import checked
from sipsim.collectives.call import WORLD, GroupCall
from sipsim.core.fields import host_time, no_time, simulated_time
from sipsim.fabric.links.outages import OutageUse
from sipsim.records.dump import Place
from sipsim.records.replay import Verdict

Ps = int
MOST_LAUNCHES = 10_000
"""The largest number of launches that a rank records."""


class KernelUse(NamedTuple):
    """The time of the kernels of launches that have ended.

    ``kernels``: number of kernels. ``kernel_ps``: sum of their run times. ``launch_ps``: sum over kernels of the
    duration of the kernel's launch. ``waited_ps``: waiting time of all kernels, by awaited command.
    """

    kernels: int = 0
    kernel_ps: Ps = 0
    launch_ps: Ps = 0
    waited_ps: Mapping[str, Ps] = {}


class LaunchRecord(msgspec.Struct, frozen=True):
    """A launch that has ended: the kernels of one launch of the host; on chips of tiles, the kernels of a program with
    the same function. ``run``: number of the collective or program on the SIP; None if the launch belongs to none.

    ``start_ps``, ``end_ps``: times at the host. ``kernels_ps``: start of the first kernel and end of the last kernel;
    None without kernels. ``target_ps``: the start time that IO_CPU set, or None; ``late_ps``: how long after
    ``target_ps`` the last kernel started. ``pes``: text for the PEs, as :func:`places_text` writes it, or for the
    tiles. ``busy_ps``: time of all kernels in ps, by the command that the kernels waited for; on chips of tiles by kind
    of wait, and the time of instructions.
    """

    name: str
    run: int | None
    start_ps: Ps
    end_ps: Ps
    kernels_ps: tuple[Ps, Ps] | None
    target_ps: Ps | None
    late_ps: Ps
    pes: str
    kernels: int
    busy_ps: dict[str, Ps]


def places_text(places: Iterable[tuple[int, int]]) -> str:
    """Return a short text for PEs of one SIP, given as (cube, PE): ``cubes 0-15, PE 0``; if the cubes differ,
    ``cube 0: PE 0-3; cube 2: PE 1``.
    """
    by_cube = {
        cube: _ranges([pe for _, pe in group]) for cube, group in groupby(sorted(places), key=lambda place: place[0])
    }
    if not by_cube:
        return "none"
    if len(set(by_cube.values())) == 1:
        name = "cube" if len(by_cube) == 1 else "cubes"
        return f"{name} {_ranges(list(by_cube))}, PE {next(iter(by_cube.values()))}"
    return "; ".join(f"cube {cube}: PE {pes}" for cube, pes in by_cube.items())


def _ranges(numbers: list[int]) -> str:
    """Return ascending numbers as ranges: ``0-3,7``."""
    ranges: list[list[int]] = []
    for number in numbers:
        if ranges and number == ranges[-1][1] + 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in ranges)


_SMAPS = Path("/proc/self/smaps_rollup")


def cpu_seconds() -> float:
    """Return user plus system CPU time of this process, in s."""
    return time.process_time()


class PeakMemory:
    """The largest proportional set size (PSS) of this process over all samples, in MiB."""

    def __init__(self) -> None:
        self.mib = 0.0

    def sample(self) -> None:
        """Take a sample, in about 1 ms of host time."""
        self.mib = max(self.mib, pss_mib())


def pss_mib() -> float:
    """Return the proportional set size (PSS) of this process in MiB; 0 if the system does not report the size.

    The file is read without psutil, whose import takes about 15 ms in each SIP process.
    """
    try:
        text = _SMAPS.read_text()
    except OSError:
        return 0.0
    kib = next((int(line.split()[1]) for line in text.splitlines() if line.startswith("Pss:")), 0)
    return kib / 1024


TL_WORDS = {
    "dma_read": "load",
    "dma_write": "store",
    "dma_read_block": "load",
    "dma_write_block": "store",
    **dict.fromkeys(("reduce", "cast", "rearrange", "make"), "math"),
    "pe_cpu.issue": "issue",
    "pe_scheduler.queue": "full queue",
}
"""The name of the command in ``tl`` by the name of a span or record, where the two names differ."""


class LinkUse(msgspec.Struct, frozen=True):
    """The traffic sent over a link: bytes of data, bytes on the wire with all overheads, and busy time.

    ``credit_bytes``: bytes of frames without data, before framing. ``frames``: number of data and credit messages;
    a message counts on each link that it passes.
    """

    link: str
    frames: int
    payload_bytes: int
    credit_bytes: int
    wire_bytes: int
    busy_ps: int


class TlbUse(msgspec.Struct, frozen=True):
    """The TLB lookups of a PE, one per page that a command accessed."""

    pe: str
    hits: int
    misses: int


class StackUse(msgspec.Struct, frozen=True):
    """The HBM with the most traffic. ``nbytes``: bytes over all ports. ``slices``: number of slices used."""

    cube: str
    nbytes: int
    slices: int


class EngineUse(msgspec.Struct, frozen=True):
    """Busy times of engines, summed over the ``pes`` PEs that multiplied. ``kernel_ps``: the run time of all kernels on
    these PEs, with or without a product.

    ``commands_ps``: the time of PE_GEMM's commands by stage (``sipsim.chips.ahbm.gemm.pipeline``).
    ``peak_ps``: the time of these commands' multiplications if every cell of the arrays worked in every cycle.
    """

    pes: int
    kernel_ps: int
    busy_ps: dict[str, int]
    commands_ps: dict[str, int]
    peak_ps: int


class Usage(msgspec.Struct, frozen=True):
    """Usage counters of one SIP from ``since_ps`` to ``until_ps``. ``iterations``: number of iterations of the row; 0
    if the counters cover the whole run.

    ``edge``: the edge, except links, with the longest busy time ``edge_busy_ps``. ``tlbs``: TLBs with lookups; empty
    without PE_MMU. ``engines``: None if no PE multiplied. ``stack``: None if no HBM was used.
    """

    since_ps: int
    until_ps: int
    iterations: int
    ran: KernelUse
    links: tuple[LinkUse, ...]
    edge: str
    edge_busy_ps: int
    tlbs: tuple[TlbUse, ...] = ()
    engines: EngineUse | None = None
    stack: StackUse | None = None


Counts = TypeVar("Counts")


def combined(one: Counts, other: Counts, sign: int = 1) -> Counts:
    """Add two trees of counters of the same structure: mappings by key, tuples, structs, numbers; an empty tree is all
    zeros. Names, which are texts, are those of ``one``.

    With ``sign`` -1 subtract ``other``, an earlier state of ``one``.
    """
    mine: Any = one
    theirs: Any = other
    total: Any
    if not theirs or (not mine and sign > 0):
        total = mine or theirs
    elif isinstance(mine, str):
        total = mine
    elif isinstance(mine, Mapping):
        total = {key: combined(value, theirs[key], sign) if key in theirs else value for key, value in mine.items()}
        total = {**theirs, **total} if sign > 0 else total
    elif isinstance(mine, tuple):
        total = [combined(*pair, sign) for pair in zip(mine, theirs, strict=True)]
        total = type(mine)(total) if type(mine) is tuple else type(mine)(*total)
    elif isinstance(mine, OutageUse):
        total = mine.plus(theirs)
    elif isinstance(mine, msgspec.Struct):
        total = type(mine)(*combined(astuple(mine), astuple(theirs), sign))
    else:
        total = mine + sign * theirs
    found: Counts = total
    return found


class Unread(NamedTuple):
    """Messages of one ring that were sent and not received."""

    sender: Annotated[Place, no_time("SIP, cube and PE that sent the messages.")]
    sender_direction: Annotated[str, no_time("The direction in which they were sent.")]
    receiver: Annotated[Place, no_time("SIP, cube and PE whose ring contains them.")]
    receiver_direction: Annotated[str, no_time("The direction from which they were to be received.")]
    messages: Annotated[int, no_time("How many messages were left.")]


SEND_RECV = "send_recv"
"""The collective's name in the record of a message between two ranks."""
PROGRAM = "program"
"""The collective's name in the record of a program of kernels on one SIP that carries out no collective."""


class RunRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One collective or program on one rank. ``spans_ps``: start and end of each timed iteration. ``kernels_ps``: per
    iteration, start of the first kernel and end of the last kernel; None without kernels on this rank.

    ``busbw``: ratio of bus bandwidth to algorithm bandwidth, as (numerator, denominator). ``values``: as in
    :class:`~sipsim.collectives.call.Call`. ``wrong``: None if this rank did not check. ``usage``: up to the
    collective's end on this rank. ``group``, ``sips``: the group and its ranks, empty for all; ``call``: number of the
    call in the group. A program is of its rank alone; its algorithm is the names of its kernels, and its bytes are the
    data that the SIP's links carried. ``run``: number on this rank, in order of starts; None if it equals the index.
    ``workers``: PEs per SIP of the schedule, 0 without a schedule. ``in_place``: source and result are one tensor.
    ``row``: the name of the row start just before the collective, "" in the job's rows; None without a row start.
    """

    collective: str
    algorithm: str
    dtype: str
    op: str
    count: int
    nbytes: int
    busbw: tuple[int, Annotated[int, msgspec.Meta(ge=1)]]
    spans_ps: tuple[tuple[int, int], ...]
    kernels_ps: tuple[tuple[int, int] | None, ...] = ()
    wrong: int | None
    first_wrong: str
    values: tuple[int, ...] = ()
    usage: Usage | None = None
    group: int = WORLD
    sips: tuple[int, ...] = ()
    call: int = 0
    run: int | None = None
    workers: int = 0
    in_place: bool = True
    row: str | None = None


class RankRow(msgspec.Struct, frozen=True, kw_only=True):
    """The entry of a SIP in ``ranks`` of result files, which the SIP reports at its end."""

    rank: Annotated[int, no_time("The number of the SIP.")]
    pid: Annotated[int, no_time("The operating system's number of the process that simulated it.")]
    host: Annotated[str, no_time("The name of the host on which that process ran.")]
    sim_end_ps: Annotated[int, simulated_time("When the last event of the SIP ended, in ps.")]
    events: Annotated[int, no_time("Events of the simulation that the SIP has run.")]
    grants: Annotated[int, no_time("Grants of the broker to the SIP; may differ from run to run.")]
    packets_sent: Annotated[int, no_time("Packets that the SIP has sent to other SIPs, credits included.")]
    packets_received: Annotated[int, no_time("Packets that the SIP has received from other SIPs.")]
    bytes_sent: Annotated[
        int, no_time("Bytes of data that the SIP has sent over all of its links together, without framing.")
    ]
    launches: Annotated[
        int, no_time(f"Launches that have ended on the SIP; the first {MOST_LAUNCHES} are in the document's launches.")
    ] = 0
    outages: Annotated[
        tuple[OutageUse, ...], no_time("The cost of outages of the SIP's outgoing links; empty without outages.")
    ] = ()
    tensor_sha256: Annotated[str, no_time("SHA-256 of the SIP's tensors at the end.")]
    oplog_sha256: Annotated[str, no_time("SHA-256 of the SIP's op log.")]
    results: Annotated[
        dict[str, str],
        no_time("On chips of tiles, SHA-256 of each declared result by name; if none, of workers and DRAM."),
    ] = {}
    wall_s: Annotated[float, host_time("From the start of the simulation in the process to its end, in s.")]
    cpu_s: Annotated[float, host_time("CPU time of the process, user and system, in s.")]
    peak_pss_mib: Annotated[
        float, no_time("The largest proportional set size (PSS) of the process at a sample, in MiB.")
    ]
    run_s: Annotated[float, host_time("How long the process simulated, in s.")]
    send_s: Annotated[float, host_time("How long the process sent packets, in s.")]
    wait_s: Annotated[float, host_time("How long the process waited for a grant or for packets, in s.")]
    restarts: Annotated[int, no_time("How often the rank's process was started again.")] = 0


class RankOutcome(RankRow, frozen=True, kw_only=True):
    """The report of a SIP to the launcher at the end: the entry in ``ranks``, and data for other parts of the result.

    ``runs``: the records of the SIP's collectives. ``calls``: the collectives that the SIP called. ``unread``: messages
    not received. ``left``: servers with unfinished work. ``usage``: usage counters, per run of the built-in job or
    for the whole run of a script. ``launch_records``: the first launches. ``verdict``: result of the second pass.
    ``read``: paths of the user's config keys that the SIP read. The launcher sets ``restarts``.
    """

    runs: tuple[RunRecord, ...]
    calls: tuple[GroupCall, ...]
    unread: tuple[Unread, ...] = ()
    left: tuple[str, ...] = ()
    usage: tuple[Usage, ...] = ()
    launch_records: tuple[LaunchRecord, ...] = ()
    verdict: Verdict | None = None
    read: tuple[tuple[str, ...], ...] = ()


_OUTCOME = msgspec.json.Decoder(RankOutcome)
_RECORD = msgspec.json.Decoder(RunRecord)


def outcome_from_bytes(blob: bytes) -> RankOutcome:
    """Decode and check the outcome of a rank from JSON.

    Raises:
        BadFrame: the bytes are not an outcome.
    """
    return checked(_OUTCOME.decode, blob, "the outcome of a rank")


def record_from_bytes(blob: bytes) -> RunRecord:
    """Decode and check the record of a collective from JSON.

    Raises:
        BadFrame: the bytes are not a record.
    """
    return checked(_RECORD.decode, blob, "the record of a collective")
