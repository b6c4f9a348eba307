"""Requests for the place of code: who has answered, and when a request ends."""

import pytest

from launcher.supervise.positions import ANSWER_S, Answers, PositionRequests, positions_of
from sipsim.records.dump import SipDump, TaskState, dump_as_text

SPINNING = TaskState((1, 2, 3), "cube 2, PE 3", "", "", (), "/home/a/mine.py", 31)
DUMP = SipDump(1, 5000, (), (SPINNING,))


class Asked:
    """Requests, and what they ended with."""

    def __init__(self) -> None:
        self.requests = PositionRequests()
        self.ended: list[Answers] = []

    def ask(self, *ranks: int, now_s: float = 0.0) -> "Asked":
        self.requests.add(ranks, self.ended.append, now_s)
        return self


def test_a_request_ends_when_all_have_answered() -> None:
    asked = Asked().ask(0, 1)
    asked.requests.note(1, dump_as_text(DUMP))
    asked.requests.finish_due(0.5)
    assert asked.ended == []
    other = SipDump(0, 7, (), ())
    asked.requests.note(0, dump_as_text(other))
    asked.requests.finish_due(0.5)
    asked.requests.finish_due(0.5)
    assert asked.ended == [{0: other, 1: DUMP}]


def test_a_request_ends_in_time_without_an_answer() -> None:
    asked = Asked().ask(0, 1)
    asked.requests.note(1, dump_as_text(DUMP))
    asked.requests.finish_due(ANSWER_S - 0.1)
    assert asked.ended == []
    asked.requests.finish_due(ANSWER_S)
    assert asked.ended == [{1: DUMP}]


@pytest.mark.parametrize("text", ["", "no dump", dump_as_text(SipDump(2, 0, (), ()))])
def test_what_is_no_dump_of_that_rank_is_no_answer(text: str) -> None:
    asked = Asked().ask(1)
    asked.requests.note(1, text)
    asked.requests.finish_due(0.5)
    assert asked.ended == []


def test_an_earlier_answer_does_not_count() -> None:
    asked = Asked().ask(1)
    asked.requests.note(1, dump_as_text(DUMP))
    asked.requests.finish_due(0.1)
    asked.ask(1, now_s=5.0)
    asked.requests.finish_due(5.1)
    assert asked.ended == [{1: DUMP}]


def test_no_ranks_end_at_once() -> None:
    asked = Asked().ask()
    asked.requests.finish_due(0.0)
    assert asked.ended == [{}]


def test_positions_with_ranks_that_are_silent() -> None:
    told = positions_of([0, 1, 2], {1: DUMP}, {2: "is stopped"}, "is silent", "/home/a")
    assert told.text.splitlines() == [
        "where the code is, at 5.000 ns of simulated time:",
        "  rank 1 cube 2 PE 3: runs at mine.py:31",
        "  rank 0: is silent",
        "  rank 2: is silent; its process is stopped",
    ]
    assert told.facts[1:] == [
        {"rank": 0, "unknown": "is silent"},
        {"rank": 2, "unknown": "is silent; its process is stopped"},
    ]
