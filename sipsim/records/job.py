"""The job of a run, the built-in collective on seeded data or a host script, and what a rank reports. Plain data."""

from typing import Annotated, Any, Literal

import msgspec

from broker.wire import checked
from sipsim.collectives.call import WORLD, GroupCall
from sipsim.core.dtypes import DEFAULT_DTYPE
from sipsim.core.fields import host_time, no_time, simulated_time
from sipsim.fabric.links.outages import OutageUse
from sipsim.records.dump import Unread
from sipsim.records.replay import Verdict
from sipsim.records.report import MOST_LAUNCHES, LaunchRecord, Usage

Recording = Literal["data", "trace", "explain", "oplog", "records"]
"""What a rank can record in its artifact folder: the data of a script's collectives, for the launcher's check; its
sends and receives; its spans; its op log. ``records``: the op log, kept in memory."""


class Work(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What a user's request and the job have in common: either ``script`` (a path, or a module with ``as_module``) with
    its ``script_args``, or a collective with its types and iterations.
    """

    dtype: str = DEFAULT_DTYPE
    op: str = "sum"
    iters: int = 1
    warmup: int = 0
    seed: int = 0
    verify_data: bool = True
    check_invariants: bool = False
    script: str | None = None
    as_module: bool = False
    script_args: tuple[str, ...] = ()
    records: tuple[Recording, ...] = ()


class JobRequest(Work, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What a user asks of a run, by the names of the launcher's options; without a script, its chip kind checks it and
    makes the :class:`Job`.

    ``collective``: None for what the chip runs if none is named. Either ``sizes``, in bytes, or ``n_elems``
    is given. ``algorithm``: the names of ``--algorithm``, perhaps ``auto`` or ``all``; None: as the config says.
    ``group``, ``root``, ``layout`` (cubes and PEs) and ``in_place``: as their flags say, empty or None without.
    ``size_source``: what gave the sizes, for messages; ``has_default_size``: nothing did.
    """

    collective: str | None
    sizes: tuple[int, ...]
    n_elems: tuple[int, ...]
    size_source: str
    has_default_size: bool
    algorithm: tuple[str, ...] | None = None
    group: str = ""
    root: int | None = None
    layout: tuple[int, int] | None = None
    in_place: bool | None = None

    @property
    def algorithms(self) -> tuple[str, ...]:
        """The names of ``--algorithm``; none: as the config says."""
        return self.algorithm or ()


class Job(Work, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What the SIPs do: the script, or the ``collective``; empty for the default one.

    ``n_elems``: elements a cube, or of a unit of a collective over a group, one run each. The latter runs the
    ``algorithms`` of each size, one after the other, in all ``groups`` at the same time (their SIPs; empty: in that of
    all), from or to rank ``root`` of each, with tensors over ``layout``, cubes and PEs of each, ``in_place`` or not.
    ``is_auto``: the algorithms were chosen by their cost. ``notes``: lines for the user.
    """

    collective: str = ""
    n_elems: tuple[int, ...] = ()
    algorithms: tuple[tuple[str, ...], ...] = ()
    groups: tuple[tuple[int, ...], ...] = ()
    root: int = 0
    layout: tuple[int, int] | None = None
    in_place: bool = False
    is_auto: bool = False
    notes: tuple[str, ...] = ()

    @classmethod
    def of(cls, request: JobRequest, **fields: Any) -> "Job":
        """The job with what it has in common with its request, and more ``fields``."""
        return cls(**{name: getattr(request, name) for name in Work.__struct_fields__} | fields)


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
    """What a SIP reports at its end and result files publish: its entry of ``ranks``."""

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
        no_time("Of chips of tiles: SHA-256 of each declared result, by name; without any of workers and of DRAM."),
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
    """What a SIP reports at its end: also its runs, the collectives that it called, messages left unread, what servers
    had left to do, how much its parts were used, in each run of the built-in job, else in all, its first launches, and
    what its second pass found; and the paths of the keys of the user that it read. The launcher knows the ``restarts``.
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


def to_bytes(thing: msgspec.Struct) -> bytes:
    """A struct of this module as JSON."""
    return msgspec.json.encode(thing)


def outcome_from_bytes(blob: bytes) -> RankOutcome:
    """The reverse of :func:`to_bytes`, checked.

    Raises:
        BadFrame: for any other bytes.
    """
    return checked(_OUTCOME.decode, blob, "the outcome of a rank")


def record_from_bytes(blob: bytes) -> RunRecord:
    """The same of a record.

    Raises:
        BadFrame: for any other bytes.
    """
    return checked(_RECORD.decode, blob, "the record of a collective")


def builtins(thing: msgspec.Struct) -> dict[str, Any]:
    """A struct as a plain dict."""
    plain: dict[str, Any] = msgspec.to_builtins(thing)
    return plain
