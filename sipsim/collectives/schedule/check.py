"""Whether a schedule can run: where its directions lead, and every step of all ranks. Pure, so alike on all ranks.

What it does not find is a result that is not the collective's (:mod:`.evaluate` carries that out), and messages that
one rank sends and none receives.
"""

from itertools import pairwise
from typing import Any

from sipsim.collectives.schedule.steps import (
    ARRIVED_FIRST,
    OWN_FIRST,
    REPLACE,
    Flow,
    ScheduleError,
    Step,
    Wiring,
    not_wired,
    number_of,
)

FOR_NEW_NAMES = "#"
"""In names of queue pairs that are made while time runs, so in no direction."""


def check_wiring(wiring: Any, size: int) -> None:
    """Check the wiring of a group of ``size`` ranks: each direction of a rank leads to one of another, and back.

    Raises:
        ScheduleError: with the first rank and direction that does not.
    """
    if not isinstance(wiring, dict):
        raise ScheduleError(f"wiring() returned {_short(wiring)}; must be a dict of (rank, direction) to the like")
    for end, peer in wiring.items():
        for each in (end, peer):
            if not _is_end(each, size):
                raise ScheduleError(
                    f"wiring() has {_short(each)}; must be (rank, direction), of ranks 0 to {size - 1} and a name "
                    f"without {FOR_NEW_NAMES}"
                )
        (rank, direction), (other, back) = end, peer
        if other == rank:
            raise ScheduleError(f"wiring() leads direction {direction} of rank {rank} back to the rank itself")
        if wiring.get(peer) != end:
            raise ScheduleError(
                f"wiring() leads direction {direction} of rank {rank} to {back} of rank {other}, which does not lead "
                f"back; mutual() of sipsim.collectives.schedule.steps makes both"
            )


def check_schedule(schedule: Any, wiring: Wiring, size: int, n_units: int) -> None:
    """Check all steps of all ranks. ``n_units``: units of the collective (:mod:`sipsim.collectives.schedule.blocks`).

    Raises:
        ScheduleError: with the first rank and round in which something is wrong.
    """
    if not isinstance(schedule, list) or not schedule or not all(isinstance(flow, Flow) for flow in schedule):
        raise ScheduleError(f"schedule() returned {_short(schedule)}; must be a list of flows, such as [flow_of(...)]")
    for flow in schedule:
        for name in ("weight", "pieces"):
            if not isinstance(getattr(flow, name), int) or getattr(flow, name) < 1:
                raise ScheduleError(f"a flow has {name} {getattr(flow, name)!r}; must be an integer of at least 1")
        steps_of = [flow.steps_of(rank) for rank in range(size)]
        for rank, steps in enumerate(steps_of):
            _check_rounds(rank, [step.round for step in steps])
        # Senders first: what a rank receives wrongly comes from one that sends it wrongly, if flow_of has made it.
        for does in ("sends", "receives"):
            for rank, steps in enumerate(steps_of):
                for step in steps:
                    _check_step(rank, does, step, wiring, n_units, flow.pieces)


def _check_rounds(rank: int, rounds: list[int]) -> None:
    for earlier, later in pairwise(rounds):
        if later <= earlier:
            raise ScheduleError(f"rank {rank} has a step of round {later} behind one of round {earlier}; rounds rise")


def _check_step(rank: int, does: str, step: Step, wiring: Wiring, n_units: int, pieces: int) -> None:
    count = n_units * pieces
    direction, blocks = (step.send, step.sends) if does == "sends" else (step.recv, step.recvs)
    if blocks and (rank, direction) not in wiring:
        raise ScheduleError(not_wired(rank, does, direction, step.round, wiring))
    for block in blocks:
        if number_of(block) >= count:
            units = f"{n_units} unit{'s' * (n_units > 1)} in {pieces} piece{'s' * (pieces > 1)}"
            raise ScheduleError(
                f"rank {rank} {does} block {number_of(block)} of {count} in round {step.round}; with {units} blocks "
                f"are numbered from 0 to {count - 1}"
            )
    if step.combine not in (REPLACE, OWN_FIRST, ARRIVED_FIRST):
        what = "must be REPLACE, OWN_FIRST or ARRIVED_FIRST"
        raise ScheduleError(f"rank {rank} receives in round {step.round} with combine {step.combine!r}; {what}")


def _is_end(thing: Any, size: int) -> bool:
    if not isinstance(thing, tuple) or len(thing) != 2:
        return False
    rank, direction = thing
    is_rank = isinstance(rank, int) and 0 <= rank < size
    return is_rank and isinstance(direction, str) and bool(direction) and FOR_NEW_NAMES not in direction


def _short(thing: Any) -> str:
    text = repr(thing)
    return text if len(text) <= 60 else f"{text[:60]}..."
