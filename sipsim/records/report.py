"""The report of a rank: its runs, the use of its SIP's parts by counters, its launches, and CPU time and memory.

All of it is plain data, part of a rank's outcome. CPU time and memory of its process are for reports only; nothing
simulated depends on them.
"""

import time
from collections.abc import Iterable, Mapping
from itertools import groupby
from pathlib import Path
from typing import Annotated, NamedTuple

import msgspec

from broker.wire import checked
from sipsim.collectives.call import WORLD, GroupCall
from sipsim.core.fields import host_time, no_time, simulated_time
from sipsim.fabric.links.outages import OutageUse
from sipsim.records.dump import Place
from sipsim.records.replay import Verdict

Ps = int
MOST_LAUNCHES = 10_000
"""The number of launches of which a rank keeps a record."""


class KernelUse(NamedTuple):
    """The time of the kernels of launches that have ended.

    ``kernels``: their number, ``kernel_ps`` how long they ran in all, ``launch_ps`` how long with the wait for the last
    one of each launch. ``waited_ps``: by the commands that they waited for.
    """

    kernels: int = 0
    kernel_ps: Ps = 0
    launch_ps: Ps = 0
    waited_ps: Mapping[str, Ps] = {}


class LaunchRecord(msgspec.Struct, frozen=True):
    """A launch that has ended. ``run``: the index of its collective among the SIP's, None for one of ``torch.launch``.

    ``start_ps`` and ``end_ps`` are those that the host sees, ``kernels_ps`` the start of the first kernel and the end
    of the last one, None without one. ``target_ps``: the start that IO_CPU has stamped, None where there is none;
    ``late_ps``: by how much the latest kernel missed it. ``pes``: see :func:`places_text`. ``busy_ps``: the time of all
    its kernels together, by the commands that they waited for.
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
    """PEs of one SIP, as (cube, PE), in a few words: ``cubes 0-15, PE 0``, or cube by cube where these differ:
    ``cube 0: PE 0-3; cube 2: PE 1``.
    """
    by_cube = {
        cube: _ranges([pe for _, pe in some]) for cube, some in groupby(sorted(places), key=lambda place: place[0])
    }
    if not by_cube:
        return "none"
    if len(set(by_cube.values())) == 1:
        name = "cube" if len(by_cube) == 1 else "cubes"
        return f"{name} {_ranges(list(by_cube))}, PE {next(iter(by_cube.values()))}"
    return "; ".join(f"cube {cube}: PE {pes}" for cube, pes in by_cube.items())


def _ranges(numbers: list[int]) -> str:
    """Ascending numbers as ranges, ``0-3,7``."""
    found: list[list[int]] = []
    for number in numbers:
        if found and number == found[-1][1] + 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in found)


_SMAPS = Path("/proc/self/smaps_rollup")


def cpu_seconds() -> float:
    """User and system time of this process."""
    return time.process_time()


class PeakMemory:
    """The largest proportional share over all samples."""

    def __init__(self) -> None:
        self.mib = 0.0

    def sample(self) -> None:
        """Take a sample; costs about a millisecond."""
        self.mib = max(self.mib, pss_mib())


def pss_mib() -> float:
    """Proportional share of memory in MiB; 0 where the system does not report it.

    Read directly: the import of psutil would take longer than this in each SIP process, some 15 ms.
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
"""What commands are called in ``tl``, where their spans and records have another name."""


class LinkUse(msgspec.Struct, frozen=True):
    """The traffic that left over a link: bytes of data, bytes with all that links and queues add, and its busy time.

    ``credit_bytes``: of frames without data, before framing. ``frames``: messages, and credits that are messages;
    through traffic counts on each link that it passes.
    """

    link: str
    frames: int
    payload_bytes: int
    credit_bytes: int
    wire_bytes: int
    busy_ps: int


class TlbUse(msgspec.Struct, frozen=True):
    """The lookups of a PE's TLB, one for each page that a command touched."""

    pe: str
    hits: int
    misses: int


class StackUse(msgspec.Struct, frozen=True):
    """The HBM of the cube through which most bytes went: bytes over all its ports, and how many slices were used."""

    cube: str
    nbytes: int
    slices: int


class EngineUse(msgspec.Struct, frozen=True):
    """The engines of the ``pes`` PEs that multiplied: how long each was busy, of all these PEs together, and for how
    long their kernels ran (``kernel_ps``), with or without a product.

    ``commands_ps``: the time of PE_GEMM's commands by what it went to (``sipsim.chips.ahbm.gemm.pipeline``).
    ``peak_ps``: the time of their multiplications if every cell of the arrays worked in every cycle.
    """

    pes: int
    kernel_ps: int
    busy_ps: dict[str, int]
    commands_ps: dict[str, int]
    peak_ps: int


class Usage(msgspec.Struct, frozen=True):
    """The use of one SIP from ``since_ps`` to ``until_ps``. ``iterations``: of the row; 0 if the counters cover the
    whole run instead of a row.

    ``edge``: the edge that was busy longest, links aside, for ``edge_busy_ps``. ``tlbs``: of the PEs that looked
    addresses up; none without PE_MMU. ``engines``: None where no PE multiplied. ``stack``: None where no HBM was used.
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


class Unread(NamedTuple):
    """Messages of one ring that were sent and not received."""

    sender: Annotated[Place, no_time("SIP, cube and PE that sent the messages.")]
    sender_direction: Annotated[str, no_time("The direction in which they were sent.")]
    receiver: Annotated[Place, no_time("SIP, cube and PE in whose ring they lie.")]
    receiver_direction: Annotated[str, no_time("The direction from which they were to be received.")]
    messages: Annotated[int, no_time("How many messages were left.")]


SEND_RECV = "send_recv"
"""A message from one rank to another, among collectives."""


class RunRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One collective as one rank saw it. ``spans_ps``: start and end of each timed iteration; ``kernels_ps``: start of
    its first kernel and end of its last one, None without kernels here.

    ``busbw``: bus bandwidth by algorithm bandwidth, as numerator and denominator. ``values``: see
    :class:`~sipsim.collectives.call.Call`. ``wrong`` is None where this rank did not check. ``usage``: up to the
    collective's end on this rank. ``group`` of the ranks ``sips``, empty for all; ``call``: its number in the group.
    ``run``: its number on this rank, in the order of starts; None: its index. ``workers``: the PEs of a SIP that a
    schedule was made for, 0 for an algorithm that is none; ``in_place``: source and result are one tensor. ``row``: the
    name of the row start that it follows, empty for one of the job; None: it follows what the script did before.
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
    """The entry of a SIP in ``ranks``, which it reports at its end and result files publish."""

    rank: Annotated[int, no_time("The number of the SIP.")]
    pid: Annotated[int, no_time("The operating system's number of the process that simulated it.")]
    host: Annotated[str, no_time("The name of the host on which that process ran.")]
    sim_end_ps: Annotated[int, simulated_time("When the last event of the SIP ended, in ps.")]
    events: Annotated[int, no_time("Events of the simulation that the SIP has run.")]
    grants: Annotated[int, no_time("Grants of the broker to the SIP; may differ from run to run.")]
    packets_sent: Annotated[int, no_time("Packets that the SIP has sent to other SIPs, credits included.")]
    packets_received: Annotated[int, no_time("Packets that it has taken from other SIPs.")]
    bytes_sent: Annotated[
        int, no_time("Bytes of data that the SIP has sent over all of its links together, without framing.")
    ]
    launches: Annotated[
        int, no_time(f"Launches that have ended on the SIP; the first {MOST_LAUNCHES} are in the document's launches.")
    ] = 0
    outages: Annotated[
        tuple[OutageUse, ...], no_time("What outages of the links that leave the SIP have cost; none without any.")
    ] = ()
    tensor_sha256: Annotated[str, no_time("SHA-256 of the SIP's tensors at the end.")]
    oplog_sha256: Annotated[str, no_time("SHA-256 of the SIP's op log.")]
    results: Annotated[
        dict[str, str],
        no_time("On chips of tiles, SHA-256 of each declared result, by name; if none, of workers and of DRAM."),
    ] = {}
    wall_s: Annotated[float, host_time("From the start of the simulation in the process to its end, in s.")]
    cpu_s: Annotated[float, host_time("CPU time of the process, user and system, in s.")]
    peak_pss_mib: Annotated[
        float, no_time("The most memory of the host that the process had at a sample, shared pages divided, in MiB.")
    ]
    run_s: Annotated[float, host_time("How long the process simulated, in s.")]
    send_s: Annotated[float, host_time("How long the process sent packets, in s.")]
    wait_s: Annotated[float, host_time("How long the process waited for a grant or for packets, in s.")]
    restarts: Annotated[int, no_time("How often the rank's process was started again.")] = 0


class RankOutcome(RankRow, frozen=True, kw_only=True):
    """What a SIP reports to the launcher at its end: its entry of ``ranks``, and what other parts of the result need.

    ``runs``: the records of its collectives. ``calls``: the collectives that it called. ``unread``: messages that it
    has not received. ``left``: servers that had work left. ``usage``: how much its parts were used, in each run of the
    built-in job, or in the whole run of a script. ``launch_records``: its first launches. ``verdict``: what its second
    pass found. ``read``: the paths of the user's keys that it read. The launcher fills in ``restarts``.
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
    """The outcome of a rank from its JSON, checked.

    Raises:
        BadFrame: for any other bytes.
    """
    return checked(_OUTCOME.decode, blob, "the outcome of a rank")


def record_from_bytes(blob: bytes) -> RunRecord:
    """The record of a collective from its JSON, checked.

    Raises:
        BadFrame: for any other bytes.
    """
    return checked(_RECORD.decode, blob, "the record of a collective")
