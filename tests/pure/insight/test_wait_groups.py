"""Reports of deadlocks of many PEs: equal waits in one line, at most 40 lines; the long report has all."""

import msgspec
import pytest

from sipsim.insight.hangs.deadlock import explain_deadlock
from sipsim.insight.hangs.fold import FEW, MOST_LINES, Entry, describe, folded, numbered, shortened
from sipsim.insight.hangs.positions import explain_positions
from sipsim.records.dump import QueueState, SipDump, TaskState

Place = tuple[int, int, int]
N_SIPS = 64
N_CUBES = 16
RING_BYTES = 4096
MOST_SHOWN = 40 - 8
"""Lines for the explanation: a headline, the way to the long report and six later failures are printed around it."""


def dump(rank: int, vary: str) -> SipDump:
    """PE 0 of every cube waits in recv, from the same cube of the rank below; what ``vary`` names differs by PE."""
    queues, tasks = [], []
    for cube in range(N_CUBES):
        number = rank * N_CUBES + cube
        place, peer = (rank, cube, 0), ((rank - 1) % N_SIPS, cube, 0)
        way = f"W{number}" if vary == "direction" else "W"
        line = 1000 + number if vary == "line" else 31
        tail = number if vary == "pointers" else 0
        queues.append(QueueState(*place, way, 0, tail, tail, 0, (number + 1) * RING_BYTES, RING_BYTES, peer, 0, 4))
        where = ("/home/a/mine.py", line, "recv")
        tasks.append(TaskState(place, f"cube {cube}, PE 0", f"recv {way}", "recv", (way,), *where))
    tasks.append(TaskState((rank, -1, -1), "host script", "a collective", "", (), "/home/a/script.py", 7))
    return SipDump(rank, 1500, tuple(queues), tuple(tasks))


@pytest.mark.parametrize("vary", ["nothing", "pointers", "direction", "line"])
def test_a_deadlock_of_1024_pes_is_short_on_a_terminal_and_whole_in_file_and_facts(vary: str) -> None:
    told = explain_deadlock([msgspec.json.encode(dump(rank, vary)) for rank in range(N_SIPS)], "/home/a")
    assert told.headline.startswith("a cycle: rank 0 cube 0 PE 0 (recv W")
    assert "; 1024 PEs wait and nothing can happen any more" in told.headline
    assert len(told.report.splitlines()) <= MOST_SHOWN
    assert max(map(len, [told.headline, *told.report.splitlines()])) < 400
    assert told.whole.count("    here:  my_head=") == 1024
    assert told.whole.count(" -> rank ") == 1024 + told.headline.count(" -> rank ")
    assert len(told.facts["waits"]) == 1024
    lines = told.report.splitlines()
    first = lines.index("  pointers of the queue pairs with a waiting PE:")
    lines, ends = lines[:first], lines[first:]
    assert (sum("my_head=" in line for line in ends), ends[-1]) == (4, "    and 1020 more queue pairs")
    if vary in ("nothing", "pointers"):
        assert lines == [
            "  1024 PEs on SIPs 0 to 63, cubes 0 to 15, PE 0: recv W at mine.py:31",
            "  ranks 0 to 63: host script waits for a collective at script.py:7",
        ]
    if vary == "direction":
        where = "  1024 PEs on SIPs 0 to 63, cubes 0 to 15, PE 0: recv in several directions at mine.py:31"
        assert lines[0] == where
    if vary == "line":
        assert len(lines) == MOST_LINES + 1
        assert lines[MOST_LINES - 1].endswith(": in 1005 other states")


def test_positions_of_1024_pes_are_short() -> None:
    dumps = [dump(rank, "line") for rank in range(N_SIPS)]
    told = explain_positions(dumps, {64: "is stopped"}, "/home/a")
    assert len(told.text.splitlines()) <= MOST_SHOWN
    assert told.text.splitlines()[0] == "where the code is, at 1.500 ns of simulated time:"
    assert "  rank 64: is stopped" in told.text.splitlines()
    assert len(told.facts) == 64 * 17 + 1


def test_what_runs_comes_before_what_waits_for_it() -> None:
    def state(cube: int, waits_for: str, op: str, word: str, file: str = "/home/a/mine.py") -> TaskState:
        return TaskState((0, cube, 0), f"cube {cube}, PE 0", waits_for, op, ("W",) if op else (), file, 30 + cube, word)

    tasks = (
        state(0, "recv W", "recv", "recv"),
        state(1, "DmaRead", "", "load"),
        state(2, "Fill", "", ""),
        state(3, "", "", ""),
        state(4, "its start", "", "", file=""),
        state(5, "", "", "add"),
        TaskState((0, -1, -1), "host script", "", "", (), "/home/a/script.py", 7),
    )
    early, late = SipDump(0, 1500, (), tasks), SipDump(1, 2500, (), ())
    assert explain_positions([early, late], folder="/home/a").text.splitlines() == [
        "where the code is, at 1.500 ns to 2.500 ns of simulated time:",
        "  rank 0 cube 3 PE 0: runs at mine.py:33",
        "  rank 0 cube 5 PE 0: tl.add at mine.py:35",
        "  rank 0 cube 1 PE 0: tl.load at mine.py:31",
        "  rank 0 cube 2 PE 0: waits for Fill at mine.py:32",
        "  rank 0 cube 4 PE 0: waits for its start",
        "  rank 0 cube 0 PE 0: recv W at mine.py:30",
        "  rank 0: host script runs at script.py:7",
        "  rank 1: its script has ended",
    ]


def entry(place: Place, text: str = "0") -> Entry:
    return Entry(place, text, "; alone", "roughly")


def test_waits_with_other_texts_are_other_groups() -> None:
    waits = [entry((0, cube, 0), "1" if cube in (2, 5, 9) else "2" if cube == 4 else "0") for cube in range(10)]
    assert folded(waits) == [
        "  6 PEs on SIP 0, cubes 0 to 1, 3, 6 to 8, PE 0: 0",
        "  3 PEs on SIP 0, cubes 2, 5, 9, PE 0: 1",
        "  rank 0 cube 4 PE 0: 2; alone",
    ]


@pytest.mark.parametrize(("count", "lines"), [(MOST_LINES, MOST_LINES), (MOST_LINES + 1, 1)])
def test_too_many_groups_are_told_roughly(count: int, lines: int) -> None:
    assert len(folded([entry((0, cube, 0), str(cube)) for cube in range(count)])) == lines


def test_places_that_are_no_product_of_ranges() -> None:
    assert describe({(0, 0, 0), (0, 1, 0), (1, 0, 0)}) == "3 PEs among SIPs 0 to 1, cubes 0 to 1, PE 0"
    assert describe({(s, c, 0) for s in range(8) for c in range(15)}) == "120 PEs on SIPs 0 to 7, cubes 0 to 14, PE 0"
    assert describe({(3, 4, 0)}) == "rank 3 cube 4 PE 0"
    assert describe({(3, -1, -1), (5, -1, -1)}) == "ranks 3, 5"


def test_many_ranges_are_cut() -> None:
    assert numbered("cube", range(0, 40, 2)) == "cubes 0, 2, 4, 6, 8, 15 more up to 38"


def test_a_cycle() -> None:
    assert shortened(["a", "b", "a"]) == "a -> b -> a"
    long = shortened([*map(str, range(FEW + 1)), "0"])
    assert long == f"0 -> 1 -> 2 -> {FEW + 2 - 5} more -> {FEW} -> 0"
