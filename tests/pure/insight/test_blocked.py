"""Deadlocks of channels: the cycle over the dumps of all SIPs, or the channels behind which the others wait."""

import msgspec
import pytest

from sipsim.insight.hangs.deadlock import explain_deadlock
from sipsim.insight.hangs.waits import channels_of, find_cycle
from sipsim.records.dump import BlockedResource, SipDump, TaskState

FULL = "8 of its 8 slots hold packets"


@pytest.mark.parametrize(
    ("edges", "cycle"),
    [
        ("", ""),
        ("a-b", ""),
        ("a-a", "a"),
        ("a-b b-c c-a", "abc"),
        ("c-a b-c a-b", "cab"),
        ("x-b b-c c-b", "bc"),
        ("x-c b-c c-b", "bc"),
        ("a-b b-a c-d d-c", "ab"),
        ("c-d d-c a-b b-a", "cd"),
        # A node with several edges waits for any of them: what is free frees it.
        ("a-b b-a b-c", ""),
        ("a-b b-c b-a c-b", "bc"),
        ("a-b b-a b-c c-a", "ab"),
        ("a-b b-c c-d d-a d-e", ""),
    ],
)
def test_cycles(edges: str, cycle: str) -> None:
    assert "".join(find_cycle(tuple(edge.split("-")) for edge in edges.split())) == cycle


def ring(chips: int, senders_first: bool = False) -> list[BlockedResource]:
    """A ring of routers, all of whose slots hold packets for farther chips."""
    found = []
    for sip in range(chips):
        sender, receiver = f"SIP {sip} eth1 sender 1", f"SIP {sip} eth0 receiver 0"
        both = [
            BlockedResource(receiver, sender, FULL),
            BlockedResource(sender, f"SIP {(sip + 1) % chips} eth0 receiver 0", "no credit"),
        ]
        found += reversed(both) if senders_first else both
    return found


def dumps(blocked: list[BlockedResource], tasks: tuple[TaskState, ...] = ()) -> list[SipDump]:
    """One for each SIP, in an order in which the broker may have them."""
    ranks = sorted({int(each.name.split()[1]) for each in blocked}, reverse=True)
    return [
        SipDump(
            rank,
            1500,
            (),
            tuple(task for task in tasks if task.place[0] == rank),
            blocked=tuple(each for each in blocked if each.name.startswith(f"SIP {rank} ")),
        )
        for rank in ranks
    ]


WORKER = TaskState((1, -1, -1), "kernel sender on 1-1", "a free slot", "", (), "/home/a/mine.py", 31)


class TestCycleOfChannels:
    def test_it_is_first_and_whole_in_the_facts(self) -> None:
        blobs = [msgspec.json.encode(each) for each in dumps(ring(4, senders_first=True), (WORKER,))]
        told = explain_deadlock(blobs, "/home/a")
        assert told.headline == (
            "a cycle of 8 channels: SIP 0 eth1 sender 1 -> SIP 1 eth0 receiver 0 -> SIP 1 eth1 sender 1 -> "
            "4 more -> SIP 0 eth0 receiver 0 -> SIP 0 eth1 sender 1; nothing can happen any more, at 1.500 ns"
        )
        lines = told.report.splitlines()
        assert lines[0] == "  SIP 0 eth1 sender 1 (no credit) waits for SIP 1 eth0 receiver 0"
        assert lines[1] == f"  SIP 1 eth0 receiver 0 ({FULL}) waits for SIP 1 eth1 sender 1"
        assert "  rank 1: kernel sender on 1-1 waits for a free slot at mine.py:31" in lines
        names = [name for sip in range(4) for name in (f"SIP {sip} eth0 receiver 0", f"SIP {sip} eth1 sender 1")]
        assert told.facts["channel_cycle"] == [*names[1:], names[0]]
        assert [each["name"] for each in told.facts["blocked"]] == told.facts["channel_cycle"]

    def test_what_waits_behind_a_cycle_is_not_in_it(self) -> None:
        worker = BlockedResource("SIP 0 worker 1-1", "SIP 0 eth1 sender 1", "")
        found = channels_of(dumps([worker, *ring(2)]))
        assert worker.name not in found.cycle
        assert found.blocked[-1] == worker
        assert (len(found.cycle), found.cycle[0]) == (4, "SIP 0 eth0 receiver 0")

    def test_a_long_one_is_short_in_the_terminal_only(self) -> None:
        told = explain_deadlock([msgspec.json.encode(each) for each in dumps(ring(32))])
        assert "a cycle of 64 channels" in told.headline
        assert "  45 more channels wait" in told.report.splitlines()
        assert len(told.report.splitlines()) == 20 + 1
        assert sum(" waits for SIP" in line for line in told.whole.splitlines()) == 64
        assert len(told.facts["channel_cycle"]) == 64


class TestNoCycle:
    def test_the_ends_come_first(self) -> None:
        """A router whose worker does not take its packets, and those behind it."""
        line = [each for each in ring(4) if not each.name.startswith("SIP 3 ")]
        end = BlockedResource("SIP 3 eth0 receiver 0", "SIP 3 worker 1-1", FULL)
        told = explain_deadlock([msgspec.json.encode(each) for each in dumps([*line, end], (WORKER,))])
        assert told.headline == (
            f"SIP 3 eth0 receiver 0 ({FULL}) waits for SIP 3 worker 1-1, which waits for no channel; "
            "6 more channels are blocked; nothing can happen any more, at 1.500 ns"
        )
        names = [each["name"] for each in told.facts["blocked"]]
        assert names[:3] == ["SIP 3 eth0 receiver 0", "SIP 2 eth1 sender 1", "SIP 2 eth0 receiver 0"]
        assert names[-1] == "SIP 0 eth0 receiver 0"
        assert told.facts["channel_cycle"] == []

    def test_what_waits_for_any_of_two_is_freed_by_one(self) -> None:
        both = [BlockedResource("SIP 0 a", "SIP 0 b", ""), BlockedResource("SIP 0 a", "SIP 1 c", "")]
        found = channels_of(dumps([*both, BlockedResource("SIP 0 b", "SIP 0 a", "")]))
        assert (found.cycle, [each.name for each in found.blocked]) == ([], ["SIP 0 a", "SIP 0 a", "SIP 0 b"])

    def test_nothing_is_blocked(self) -> None:
        assert channels_of([SipDump(0, 0, (), (WORKER,))]) == ([], [])
