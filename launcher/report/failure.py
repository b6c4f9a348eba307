"""A failure as its user reads it: one block on the terminal, and one document for programs. Pure.

``error.json`` in ``--log-dir`` and ``--run-dir``, and ``error`` in ``--json``, hold (what is not known is left out):

    kind, rank, message       as schema 1 has them; ``rank`` is null where the failure is of no one rank
    process, host, pid        whose failure it was: "sip-2", "broker", ...
    signal | exit_code        how its process ended: "SIGKILL", 7
    oom_kills                 processes that the kernel killed on this host during the run, for want of memory
    time_ps, granted_ps       simulated time of the rank, and to where it had last been granted to run
    incarnation, restarts     which of the rank's processes it was, and how many of the run were started again
    last_lines, log           the end of its output, and where all of it lies
    also                      what failed after that, in order: [{kind, rank, message}]

and what a kind has of its own, such as ``cube``, ``pe``, ``direction``, ``deadlock``, ``missing``. ``error.json`` has
``schema``, ``version``, ``status`` and ``detail`` (more lines for people, such as a traceback) besides.
"""

from typing import Any

from broker.wire import SipSync, Sync
from launcher.processes.names import sip_name
from launcher.report.outcome import Outcome, RunError
from sipsim import VERSION
from sipsim.errors import ERROR_KINDS
from sipsim.units import format_time_ps

SCHEMA = 1
MOST_ALSO = 5
"""Failures after the first that are told on the terminal."""
_OF_THE_HOST = ERROR_KINDS["internal"]
Facts = dict[str, Any]


def error_of(outcome: Outcome) -> Facts | None:
    """The failure of a run with all that is known of it, as the module says; None when there was none."""
    error = outcome.error
    if error is None:
        return None
    known = {key: value for key, value in error.facts.items() if value not in ("", None)}
    facts: Facts = {"kind": error.kind, "rank": error.rank, "message": error.message, **known}
    if _is_of_the_host(error):
        facts = {**facts, **_standing(outcome, error), **known}
        facts["restarts"] = outcome.restarts
        if "pid" in facts and outcome.host:
            facts.setdefault("host", outcome.host)
        is_here = facts.get("host", "") in ("", outcome.host)
        if outcome.oom_kills and is_here and facts.get("signal") == "SIGKILL" and error.kind == "process_died":
            facts["oom_kills"] = outcome.oom_kills
    if outcome.also:
        facts["also"] = [{"kind": each.kind, "rank": each.rank, "message": each.message} for each in outcome.also]
    return facts


def error_file_of(outcome: Outcome) -> Facts | None:
    """What ``error.json`` holds."""
    facts = error_of(outcome)
    if facts is None or outcome.error is None:
        return None
    head: Facts = {"schema": SCHEMA, "version": VERSION, "status": outcome.status}
    return {**head, **facts, "detail": outcome.error.detail}


def block(outcome: Outcome) -> str:
    """What the terminal says of a failure, without a line's end; empty when there was none."""
    facts, error = error_of(outcome), outcome.error
    if facts is None or error is None:
        return ""
    kind = "" if outcome.status == "interrupted" else f"{error.kind}: "
    lines = [f"ahbm-launch: {kind}{error.message}"]
    if _is_of_the_host(error):
        lines += [f"  {line}" for line in (_memory(facts), _when(facts)) if line]
    if error.detail:
        lines.append(error.detail.rstrip("\n"))
    lines += _what_followed(outcome, error)
    if "last_lines" in facts:
        whole = f" (all of it: {facts['log']})" if "log" in facts else ""
        lines += [f"last lines of its log{whole}:", *(f"  | {line}" for line in facts["last_lines"])]
    elif "log" in facts:
        lines.append(f"its log is empty: {facts['log']}")
    return "\n".join(lines)


def _is_of_the_host(error: RunError) -> bool:
    """Whether processes or hosts failed, and not what was simulated on them."""
    return ERROR_KINDS[error.kind] == _OF_THE_HOST


def _standing(outcome: Outcome, error: RunError) -> Facts:
    """How the failed rank stood with time when the broker last told."""
    sip = _last_of(outcome.known_sync, error.rank)
    if error.rank is None or sip is None:
        return {}
    facts: Facts = {"process": sip_name(error.rank), "incarnation": outcome.incarnations.get(error.rank, 0)}
    if sip.state not in ("joining", "joined"):
        facts["time_ps"] = sip.now_ps
        if sip.horizon_ps is not None:
            facts["granted_ps"] = sip.horizon_ps
    return facts


def _last_of(sync: Sync | None, rank: int | None) -> SipSync | None:
    return next((sip for sip in sync.sips if sip.rank == rank), None) if sync else None


def _memory(facts: Facts) -> str:
    number = facts.get("oom_kills", 0)
    if not number:
        return ""
    processes = "a process" if number == 1 else f"{number} processes"
    return f"perhaps by the kernel's out-of-memory killer, which killed {processes} on this host during the run"


def _when(facts: Facts) -> str:
    said = []
    if "time_ps" in facts and format_time_ps(facts["time_ps"]) not in facts["message"]:
        granted = f", granted to {format_time_ps(facts['granted_ps'])}" if "granted_ps" in facts else ""
        said.append(f"at {format_time_ps(facts['time_ps'])} of simulated time{granted}")
    if facts.get("incarnation"):
        said.append(f"incarnation {facts['incarnation']} of the rank")
    if facts.get("restarts"):
        said.append(f"{facts['restarts']} restarts so far" if facts["restarts"] > 1 else "1 restart so far")
    return "; ".join(said)


def _what_followed(outcome: Outcome, error: RunError) -> list[str]:
    """All ranks run the same program, so what one does wrong another will do wrong too: that is told once."""
    others = [each for each in outcome.also if _is_of_the_host(each) or each.kind != error.kind]
    told = [f"  then: {each.kind}: {each.message}" for each in others[:MOST_ALSO]]
    more = len(others) - len(told)
    return [*told, f"  then: {more} more"] if more else told
