"""What the second passes of the ranks have found: a difference between them and the first is as wrong numbers are."""

from typing import Annotated, TypedDict

from launcher.report.outcome.error_facts import FoundFacts
from launcher.report.outcome.outcome import Outcome, RunError
from sipsim.core.fields import no_time
from sipsim.insight.replay.checksums import changed
from sipsim.records.replay.verdict import Verdict

WRONG_NUMBERS = "wrong_numbers"


class SecondPassEntry(TypedDict):
    """The second pass of all ranks together."""

    records: Annotated[int, no_time("Records of the op logs that were performed again.")]
    differences: Annotated[int, no_time("Records whose values differ between the passes, and differences at the end.")]
    races: Annotated[
        int, no_time("Differences between accesses to the same bytes at the same time, which the program leaves open.")
    ]
    first_race: Annotated[str, no_time("One of them; empty without one.")]
    stopped: Annotated[str, no_time("Why records were left out, by the first rank that did; empty where none did.")]


def note_verdicts(outcome: Outcome) -> None:
    """Take the verdicts of a complete run; the first difference of each rank is told."""
    if outcome.error is not None or not outcome.complete or outcome.cut_short:
        return
    verdicts = _verdicts(outcome)
    found = [(rank, each.difference) for rank, each in verdicts.items() if each.difference is not None]
    for rank, difference in found:
        facts: FoundFacts = {}
        if difference.number:
            facts = {"cube": difference.cube, "pe": difference.pe, "time_ps": difference.time_ps}
            facts |= {"record": difference.number, "record_text": difference.record}
        outcome.fail(RunError(WRONG_NUMBERS, rank, f"rank {rank}, second pass: {difference.message}", facts=facts))
    _note_messages(outcome, verdicts)
    for line in (_stopped(verdicts), _race(verdicts)):
        if line:
            outcome.notices.append(line)


def entry_of(outcome: Outcome) -> SecondPassEntry | None:
    """The second pass as it stands in the result file; None without one."""
    verdicts = _verdicts(outcome)
    if not verdicts or outcome.cut_short:
        return None
    return {
        "records": sum(each.records for each in verdicts.values()),
        "differences": sum(each.differences for each in verdicts.values()),
        "races": sum(each.races for each in verdicts.values()),
        "first_race": next((each.first_race for each in verdicts.values() if each.first_race), ""),
        "stopped": next((each.stopped for each in verdicts.values() if each.stopped), ""),
    }


def _verdicts(outcome: Outcome) -> dict[int, Verdict]:
    ranks = sorted(outcome.ranks.items())
    return {rank: told.verdict for rank, told in ranks if told.verdict is not None}


def _note_messages(outcome: Outcome, verdicts: dict[int, Verdict]) -> None:
    """Messages between SIPs whose bytes changed on their way. A rank that has stopped knows only some it has sent."""
    stopped = {rank for rank, each in verdicts.items() if each.stopped}
    sent = [check for rank, each in verdicts.items() if rank not in stopped for check in each.sent]
    arrived = [check for each in verdicts.values() for check in each.arrived if check.sender[0] not in stopped]
    found = changed(sent, arrived) if len(verdicts) == len(outcome.ranks) else None
    if found is None:
        return
    check, which = found
    sip, cube, pe = check.sender
    peer = next((each.peer for each in sent if (each.sender, each.direction) == (check.sender, check.direction)), "")
    to = f" to {peer}" if peer else ""
    message = f"rank {sip}, second pass: {which} {check.direction} of {sip}.{cube}.{pe}{to} was changed on its way"
    outcome.fail(RunError(WRONG_NUMBERS, sip, message, facts={"cube": cube, "pe": pe, "direction": check.direction}))


def _stopped(verdicts: dict[int, Verdict]) -> str:
    ranks = [rank for rank, each in verdicts.items() if each.stopped]
    more = f" (and {len(ranks) - 1} more)" if len(ranks) > 1 else ""
    return f"the second pass of rank {ranks[0]}{more} stopped: {verdicts[ranks[0]].stopped}" if ranks else ""


def _race(verdicts: dict[int, Verdict]) -> str:
    total = sum(each.races for each in verdicts.values())
    rank = next((rank for rank, each in verdicts.items() if each.races), None)
    if rank is None:
        return ""
    what = "1 access meets" if total == 1 else f"{total} accesses meet"
    return f"{what} another to the same bytes at the same time: rank {rank}, {verdicts[rank].first_race}"
