"""The job of a run, the built-in collective on seeded data or a host script, and what a rank reports. Plain data."""

from typing import Annotated, Any, NamedTuple

import msgspec

from broker.wire import checked
from sipsim.record.dump import Unread


class JobRequest(NamedTuple):
    """What a user asks of a run without a script; its chip kind checks it and makes the :class:`Job`.

    ``collective``: None for what the chip runs if none is named. Either ``sizes``, in bytes, or ``n_elems``
    is given.
    ``size_source``: what gave the sizes, for messages; ``has_default_size``: nothing did.
    """

    collective: str | None
    sizes: tuple[int, ...]
    n_elems: tuple[int, ...]
    size_source: str
    has_default_size: bool
    dtype: str
    op: str
    iters: int
    warmup: int
    seed: int
    verify: bool
    check_invariants: bool
    trace: bool


class Job(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Either ``script`` (a path, or a module with ``as_module``) with its ``script_args``, or the collective; empty for
    the default one.

    ``n_elems``: elements a cube, one run each. What a rank records in its artifact folder: ``record_io``, the data of a
    script's collectives, for the launcher's check; ``trace``, its sends and receives.
    """

    collective: str = ""
    n_elems: tuple[int, ...] = ()
    dtype: str = "f16"
    op: str = "sum"
    iters: int = 1
    warmup: int = 0
    seed: int = 0
    verify: bool = True
    script: str | None = None
    as_module: bool = False
    script_args: tuple[str, ...] = ()
    record_io: bool = False
    check_invariants: bool = False
    trace: bool = False


class RunRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One collective as one rank saw it. ``spans_ps``: start and end of each timed iteration.

    ``busbw``: bus bandwidth by algorithm bandwidth, as numerator and denominator. ``values``: see
    :class:`~sipsim.ccl.collectives.base.Call`. ``wrong`` is None where this rank did not check.
    """

    collective: str
    algorithm: str
    dtype: str
    op: str
    count: int
    nbytes: int
    busbw: tuple[int, Annotated[int, msgspec.Meta(ge=1)]]
    spans_ps: tuple[tuple[int, int], ...]
    wrong: int | None
    first_wrong: str
    values: tuple[int, ...] = ()


class RankOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """What a SIP reports at its end: its ``ranks`` entry of the result file, its runs, the collectives that it called,
    and messages left unread.
    """

    rank: int
    pid: int
    host: str
    sim_end_ps: int
    events: int
    grants: int
    packets_sent: int
    packets_received: int
    bytes_sent: int
    tensor_sha256: str
    oplog_sha256: str
    wall_s: float
    cpu_s: float
    peak_pss_mib: float
    run_s: float
    send_s: float
    wait_s: float
    runs: tuple[RunRecord, ...]
    calls: tuple[str, ...]
    unread: tuple[Unread, ...] = ()


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
