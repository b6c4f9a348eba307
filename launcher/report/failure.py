"""Formats the failure of a run: as text for the terminal, and as a document for programs. Pure.

:mod:`launcher.report.outcome` declares all keys of the document; keys without a value are left out.
"""

from pathlib import Path
from typing import Any

from broker.wire import SipSync, Sync
from launcher.processes.fork_server import process_name
from launcher.report.outcome import LongReport, Outcome, RunError
from sipsim import VERSION
from sipsim.core.errors import ERROR_KINDS
from sipsim.core.units import format_time_ps

SCHEMA = 1
MOST_ALSO = 5
"""The most later failures that are printed on the terminal."""
_HOST_FAILURE = ERROR_KINDS["internal"]
Facts = dict[str, Any]


def error_of(outcome: Outcome) -> Facts | None:
    """Return the failure of a run as a document; None if the run has not failed."""
    error = outcome.error
    if error is None:
        return None
    known = {key: value for key, value in error.facts.items() if value not in ("", None)}
    facts: Facts = {"kind": error.kind, "rank": error.rank, "message": error.message, **known}
    if _is_host_failure(error):
        facts = {**facts, **_sync_facts(outcome, error), **known}
        facts["restarts"] = outcome.restarts
        if "pid" in facts and outcome.host:
            facts.setdefault("host", outcome.host)
        is_local = facts.get("host", "") in ("", outcome.host)
        if outcome.oom_kills and is_local and facts.get("signal") == "SIGKILL" and error.kind == "process_died":
            facts["oom_kills"] = outcome.oom_kills
    if outcome.also:
        facts["also"] = [{"kind": each.kind, "rank": each.rank, "message": each.message} for each in outcome.also]
    return facts


def error_file_of(outcome: Outcome) -> Facts | None:
    """Return the content of ``error.json``; None if the run has not failed."""
    facts = error_of(outcome)
    if facts is None or outcome.error is None:
        return None
    head: Facts = {"schema": SCHEMA, "version": VERSION, "status": outcome.status}
    return {**head, **facts, "detail": outcome.error.detail}


def block(outcome: Outcome, log_dir: Path | None = None) -> str:
    """Return the failure as text for the terminal, without a final newline; empty if the run has not failed."""
    facts, error = error_of(outcome), outcome.error
    if facts is None or error is None:
        return ""
    kind = "" if outcome.status == "interrupted" else f"{error.kind}: "
    lines = [f"ahbm-launch: {kind}{error.message}"]
    if _is_host_failure(error):
        lines += [f"  {line}" for line in (_memory(facts), _when(facts)) if line]
    if error.detail:
        *before, last = error.detail.rstrip("\n").split("\n")
        lines += before if before and error.message.startswith(last) else [*before, last]
    if outcome.long_report is not None:
        lines.append(f"  {_long_report_hint(outcome.long_report, log_dir)}")
    lines += _later_failures(outcome, error)
    if "last_lines" in facts:
        whole = f" (complete: {facts['log']})" if "log" in facts else ""
        lines += [f"last lines of the process's log{whole}:", *(f"  | {line}" for line in facts["last_lines"])]
    elif "log" in facts:
        lines.append(f"the process's log is empty: {facts['log']}")
    return "\n".join(lines)


def _long_report_hint(report: LongReport, log_dir: Path | None) -> str:
    where = f"give --log-dir DIR, and read DIR/{report.file}" if log_dir is None else str(log_dir / report.file)
    return f"{report.what}: {where}"


def _is_host_failure(error: RunError) -> bool:
    """Whether processes or hosts failed, rather than the simulated program."""
    return ERROR_KINDS[error.kind] == _HOST_FAILURE


def _sync_facts(outcome: Outcome, error: RunError) -> Facts:
    """Return the failed rank's incarnation, simulated time and horizon, from the broker's last ``Sync`` message."""
    sip = _last_of(outcome.known_sync, error.rank)
    if error.rank is None or sip is None:
        return {}
    facts: Facts = {"process": process_name(error.rank), "incarnation": outcome.incarnations.get(error.rank, 0)}
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
    parts = []
    if "time_ps" in facts and format_time_ps(facts["time_ps"]) not in facts["message"]:
        granted = f", granted to {format_time_ps(facts['granted_ps'])}" if "granted_ps" in facts else ""
        parts.append(f"at {format_time_ps(facts['time_ps'])} of simulated time{granted}")
    if facts.get("incarnation"):
        parts.append(f"incarnation {facts['incarnation']} of the rank")
    if facts.get("restarts"):
        parts.append(f"{facts['restarts']} restarts so far" if facts["restarts"] > 1 else "1 restart so far")
    return "; ".join(parts)


def _later_failures(outcome: Outcome, error: RunError) -> list[str]:
    """Return lines about later failures, without program errors of ``error``'s kind: all ranks run the same program."""
    others = [each for each in outcome.also if _is_host_failure(each) or each.kind != error.kind]
    lines = [f"  then: {each.kind}: {each.message}" for each in others[:MOST_ALSO]]
    more = len(others) - len(lines)
    return [*lines, f"  then: {more} more failures"] if more else lines
