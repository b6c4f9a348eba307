"""Reports of deadlocks of many PEs: equal waits in groups, in text only."""

import msgspec
import pytest

from sipsim.ccl.deadlock import explain_deadlock
from sipsim.ccl.wait_groups import FEW, describe, grouped, grouped_ranks, shortened
from sipsim.record.dump import QueueState, SipDump, TaskState

Place = tuple[int, int, int]
N_SIPS = 32
RING_BYTES = 4096


def dump(rank: int) -> bytes:
    """PE 0 of cube 3 waits in recv from the rank below it, in a ring of ``N_SIPS``; so does the host script."""
    place, peer = (rank, 3, 0), ((rank - 1) % N_SIPS, 3, 0)
    queue = QueueState(place, "W", peer, 0, 0, 0, 0, (rank + 1) * RING_BYTES, RING_BYTES, 0, 4)
    kernel = TaskState(place, "cube 3, PE 0", "recv W", "recv", ("W",))
    script = TaskState((rank, -1, -1), "host script", "a collective", "", ())
    return msgspec.json.encode(SipDump(rank, 1500, (queue,), (kernel, script)))


def test_a_deadlock_of_32_pes_is_short_in_text_and_whole_in_its_facts() -> None:
    line, report, facts = explain_deadlock([dump(rank) for rank in range(N_SIPS)])
    assert line.startswith("32 PEs wait and nothing can happen any more")
    assert line.count("cube 3") == 6
    assert " -> 27 more -> rank 1 cube 3 PE 0 (recv W) -> rank 0 cube 3 PE 0" in line
    lines = report.splitlines()
    assert len(lines) == 7
    assert lines[0].startswith("  rank 0 cube 3 PE 0 waits in recv W, peer rank 31 cube 3 PE 0: ")
    assert lines[2] == "    32 PEs on SIPs 0 to 31, cube 3, PE 0 wait like this"
    assert lines[4:6] == [
        "    rank 0 cube 3 PE 0 -> rank 31 cube 3 PE 0 (recv W)",
        "      32 PEs on SIPs 0 to 31, cube 3, PE 0 wait like this",
    ]
    assert lines[6] == "  ranks 0 to 31: host script waits for a collective"
    assert (len(facts["waits"]), len(facts["cycle"])) == (N_SIPS, N_SIPS)


def text_of(place: Place, state: str = "0") -> tuple[Place, str]:
    return place, f"  rank {place[0]} cube {place[1]} PE {place[2]} waits: {state}"


def test_waits_with_other_states_are_other_groups() -> None:
    waits = [text_of((0, cube, 0), "1" if cube in (2, 5, 9) else "0") for cube in range(10)]
    assert grouped(waits, "wait") == [
        "  rank 0 cube 0 PE 0 waits: 0\n    7 PEs on SIP 0, cubes 0 to 1, 3 to 4, 6 to 8, PE 0 wait like this",
        "  rank 0 cube 2 PE 0 waits: 1\n    3 PEs on SIP 0, cubes 2, 5, 9, PE 0 wait like this",
    ]


@pytest.mark.parametrize("count", [1, FEW])
def test_few_waits_are_listed(count: int) -> None:
    waits = [text_of((0, cube, 0)) for cube in range(count)]
    assert grouped(waits, "wait") == [text for _, text in waits]
    assert len(grouped_ranks([(rank, "x") for rank in range(count)])) == count


def test_two_equal_waits_among_many_are_listed() -> None:
    waits = [text_of((0, cube, 0), f"{cube // 2}") for cube in range(10)]
    assert grouped(waits, "wait") == [text for _, text in waits]


def test_places_that_are_no_product_of_ranges() -> None:
    assert describe({(0, 0, 0), (0, 1, 0), (1, 0, 0)}) == "3 PEs among SIPs 0 to 1, cubes 0 to 1, PE 0"
    assert describe({(s, c, 0) for s in range(8) for c in range(15)}) == "120 PEs on SIPs 0 to 7, cubes 0 to 14, PE 0"


def test_a_short_cycle_is_complete() -> None:
    assert shortened(["a", "b", "a"]) == "a -> b -> a"
