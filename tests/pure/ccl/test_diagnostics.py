"""The report of a deadlock, from dumps made by hand: a cycle, or a missing send or recv."""

import msgspec
import pytest

from broker.wire import BadFrame
from sipsim.ccl.deadlock import explain_deadlock, find_cycle
from sipsim.record.dump import QueueState, SipDump, TaskState

Place = tuple[int, int, int]
RING_BYTES = 4096


def ring(place: Place, number: int) -> int:
    """The address of a place's receive ring."""
    return (place[0] * 1000 + place[1] * 10 + number) * RING_BYTES


def queue(place: Place, direction: str, peer: Place, mine: int, theirs: int, *pointers: int) -> QueueState:
    """Ring ``mine`` of this place and ring ``theirs`` of its peer; pointers in the order of ADR-0023."""
    return QueueState(
        place, direction, peer, *(pointers or (0,) * 4), ring(place, mine), RING_BYTES, ring(peer, theirs), 4
    )


def waits(place: Place, op: str, direction: str) -> TaskState:
    return TaskState(place, f"cube {place[1]}, PE {place[2]}", f"{op} {direction}", op, (direction,))


def host(rank: int) -> TaskState:
    return TaskState((rank, -1, -1), "host script", "a collective", "", ())


def blobs(queues: list[QueueState], tasks: list[TaskState], ranks: int, now_ps: int = 1500) -> list[bytes]:
    """The dumps of all ranks, each with its own queues and tasks."""
    return [
        msgspec.json.encode(
            SipDump(
                rank,
                now_ps if rank == 0 else now_ps - 1,
                tuple(q for q in queues if q.place[0] == rank),
                tuple(t for t in tasks if t.place[0] == rank),
            )
        )
        for rank in range(ranks)
    ]


def ring_of(ranks: int) -> list[QueueState]:
    """A queue pair E and W of each rank's cube 3 in a ring: E is ring 0, W ring 1."""
    places = [(rank, 3, 0) for rank in range(ranks)]
    return [
        pair
        for rank, here in enumerate(places)
        for pair in (
            queue(here, "global_E", places[(rank + 1) % ranks], 0, 1, 5, 2, 2, 4),
            queue(here, "global_W", places[(rank - 1) % ranks], 1, 0),
        )
    ]


class TestCycles:
    def test_receivers_in_a_cycle(self) -> None:
        tasks = [waits((rank, 3, 0), "recv", "global_W") for rank in range(3)]
        line, report, _facts = explain_deadlock(blobs(ring_of(3), tasks, 3))
        assert line == (
            "3 PEs wait and nothing can happen any more, at 1.500 ns; a cycle: "
            "rank 0 cube 3 PE 0 (recv global_W) -> rank 2 cube 3 PE 0 (recv global_W) -> "
            "rank 1 cube 3 PE 0 (recv global_W) -> rank 0 cube 3 PE 0"
        )
        assert report.splitlines()[0:9:3] == [
            f"  rank {rank} cube 3 PE 0 waits in recv global_W, peer rank {(rank - 1) % 3} cube 3 PE 0: "
            f"message 0 has not arrived"
            for rank in (0, 2, 1)
        ]

    def test_senders_into_full_rings(self) -> None:
        tasks = [waits((rank, 3, 0), "send", "global_E") for rank in range(2)]
        line, report, _facts = explain_deadlock(blobs(ring_of(2), tasks, 2))
        assert report.splitlines()[0].endswith(": 1 of its ring's 4 slots are full")
        assert line.endswith(
            "a cycle: rank 0 cube 3 PE 0 (send global_E) -> rank 1 cube 3 PE 0 (send global_E) -> rank 0 cube 3 PE 0"
        )

    def test_a_pe_that_waits_for_the_cycle_is_not_in_it(self) -> None:
        queues = [
            *ring_of(3),
            queue((0, 2, 0), "E", (0, 3, 0), 0, 2),
            queue((0, 3, 0), "W", (0, 2, 0), 2, 0),
        ]
        tasks = [waits((0, 2, 0), "recv", "E"), *(waits((rank, 3, 0), "recv", "global_W") for rank in range(3))]
        line, report, _facts = explain_deadlock(blobs(queues, tasks, 3))
        assert line.startswith("4 PEs wait")
        assert "cube 2" not in line
        named = [text for text in report.splitlines() if " waits in " in text]
        assert len(named) == 4
        assert named[-1] == "  rank 0 cube 2 PE 0 waits in recv E, peer rank 0 cube 3 PE 0: message 0 has not arrived"

    def test_of_two_cycles_the_one_with_the_least_place_is_reported(self) -> None:
        a, b, c, d = (0, 0, 0), (0, 1, 0), (1, 0, 0), (1, 1, 0)
        queues = [queue(x, "E", y, 0, 0) for x, y in ((a, b), (b, a), (c, d), (d, c))]
        line, _, _facts = explain_deadlock(blobs(queues, [waits(place, "recv", "E") for place in (d, c, b, a)], 2))
        assert "a cycle: rank 0 cube 0 PE 0 (recv E) -> rank 0 cube 1 PE 0 (recv E) -> rank 0 cube 0 PE 0" in line

    def test_a_pe_that_waits_for_itself(self) -> None:
        here = (0, 0, 0)
        line, _, _facts = explain_deadlock(blobs([queue(here, "E", here, 0, 0)], [waits(here, "recv", "E")], 1))
        assert line.endswith("a cycle: rank 0 cube 0 PE 0 (recv E) -> rank 0 cube 0 PE 0")

    def test_none(self) -> None:
        assert find_cycle([]) == []


class TestMissingPeer:
    def test_a_missing_send(self) -> None:
        tasks = [waits((rank, 3, 0), "recv", "global_W") for rank in (0, 2)]
        line, report, _facts = explain_deadlock(blobs(ring_of(3), [*tasks, host(0), host(2)], 3))
        assert line == (
            "2 PEs wait and nothing can happen any more, at 1.500 ns; missing: a send by rank 1 cube 3 PE 0, "
            "which waits for nothing, to rank 2 cube 3 PE 0 (its recv global_W)"
        )
        lines = report.splitlines()
        for line, (who, peer) in zip(lines[0:6:3], ((2, 1), (0, 2)), strict=True):
            text = f"  rank {who} cube 3 PE 0 waits in recv global_W, peer rank {peer} cube 3 PE 0"
            assert line == f"{text}: message 0 has not arrived"
        assert lines[6:] == [
            "  waits-for graph:",
            "    rank 2 cube 3 PE 0 -> rank 1 cube 3 PE 0 (recv global_W)",
            "    rank 0 cube 3 PE 0 -> rank 2 cube 3 PE 0 (recv global_W)",
            "  rank 0: host script waits for a collective",
            "  rank 2: host script waits for a collective",
            "  rank 1: its script has ended",
        ]

    def test_a_missing_recv(self) -> None:
        line, _, _facts = explain_deadlock(blobs(ring_of(3), [waits((0, 3, 0), "send", "global_E")], 3))
        assert line.endswith(
            "missing: a recv by rank 1 cube 3 PE 0, which waits for nothing, of what rank 0 cube 3 PE 0 sends global_E"
        )

    def test_the_pointers_of_both_ends(self) -> None:
        _, report, _facts = explain_deadlock(blobs(ring_of(3), [waits((2, 3, 0), "recv", "global_W")], 3))
        assert report.splitlines() == [
            "  rank 2 cube 3 PE 0 waits in recv global_W, peer rank 1 cube 3 PE 0: message 0 has not arrived",
            "    here:  my_head=0 my_tail=0 peer_head_cache=0 peer_tail_cache=0",
            "    there: my_head=5 my_tail=2 peer_head_cache=2 peer_tail_cache=4 (its global_E)",
            "  waits-for graph:",
            "    rank 2 cube 3 PE 0 -> rank 1 cube 3 PE 0 (recv global_W)",
            "  rank 0: its script has ended",
            "  rank 1: its script has ended",
        ]

    def test_two_links_between_the_same_sips_are_distinguished_by_their_rings(self) -> None:
        """With two SIPs in a ring both directions lead to the same peer."""
        _, report, _facts = explain_deadlock(blobs(ring_of(2), [waits((0, 3, 0), "recv", "global_W")], 2))
        assert report.splitlines()[2].endswith("(its global_E)")
        _, report, _facts = explain_deadlock(blobs(ring_of(2), [waits((0, 3, 0), "recv", "global_E")], 2))
        assert report.splitlines()[2].endswith("(its global_W)")

    def test_a_peer_without_a_queue_in_any_dump(self) -> None:
        """A receive-only ring: the far end is unknown and left out."""
        lonely = queue((0, 0, 0), "E", (1, 0, 0), 0, 7)
        _, report, _facts = explain_deadlock(blobs([lonely], [waits((0, 0, 0), "recv", "E")], 2))
        starts = [line[:8] for line in report.splitlines()]
        assert starts == ["  rank 0", "    here", "  waits-", "    rank", "  rank 1"]

    def test_only_scripts_wait(self) -> None:
        line, report, _facts = explain_deadlock(blobs(ring_of(2), [host(1)], 2))
        assert line.startswith("0 PEs wait")
        assert line.endswith("the host scripts wait, and no kernel is left to resume them")
        assert report == "  rank 1: host script waits for a collective\n  rank 0: its script has ended"

    def test_a_kernel_waits_for_a_command(self) -> None:
        """It is in no queue, so it is no part of the graph, but it waits all the same."""
        tasks = [TaskState((rank, 1, 0), "cube 1, PE 0", "Fill", "", ()) for rank in (1, 0)]
        line, _report, facts = explain_deadlock(blobs(ring_of(2), [*tasks, host(1)], 2))
        assert line.startswith("2 PEs wait")
        assert line.endswith("; rank 0 cube 1 PE 0 waits for Fill, which nothing will end")
        assert facts["waits"] == []

    def test_a_chain_has_one_root(self) -> None:
        """0 waits for 1, 1 for 2, 2 for 3, which does not wait: only the last is the cause."""
        tasks = [waits((rank, 3, 0), "recv", "global_E") for rank in (0, 1, 2)]
        line, report, _facts = explain_deadlock(blobs(ring_of(4), tasks, 4))
        assert "missing: a send by rank 3 cube 3 PE 0" in line
        assert [text.split(" waits")[0].strip() for text in report.splitlines()[0:9:3]] == [
            f"rank {rank} cube 3 PE 0" for rank in (2, 0, 1)
        ]


@pytest.mark.parametrize("blob", [b"", b"{}", b'{"rank": "one"}', b"\xff"])
def test_bytes_that_are_no_dump_are_refused(blob: bytes) -> None:
    with pytest.raises(BadFrame, match=r"^not the dump of a SIP: [EJOI]"):
        explain_deadlock([blob])
