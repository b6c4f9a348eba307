"""The report of a deadlock, from dumps made by hand: a cycle, or a missing send or recv."""

import msgspec
import pytest

from broker.wire import BadFrame
from sipsim.ccl.hangs.deadlock import cycle_of, explain_deadlock
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


def waits(place: Place, op: str, direction: str, line: int = 31) -> TaskState:
    name, file = f"cube {place[1]}, PE {place[2]}", "/home/a/mine.py"
    return TaskState(place, name, f"{op} {direction}", op, (direction,), file, line, op)


def host(rank: int) -> TaskState:
    return TaskState((rank, -1, -1), "host script", "a collective", "", (), "/home/a/script.py", 7)


def blobs(
    queues: list[QueueState], tasks: list[TaskState], ranks: int, now_ps: int = 1500, calls: tuple[int, ...] = ()
) -> list[bytes]:
    """The dumps of all ranks, each with its own queues and tasks."""
    return [
        msgspec.json.encode(
            SipDump(
                rank,
                now_ps if rank == 0 else now_ps - 1,
                tuple(q for q in queues if q.place[0] == rank),
                tuple(t for t in tasks if t.place[0] == rank),
                {0: calls[rank]} if calls else {},
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
        line, report, whole, facts = explain_deadlock(blobs(ring_of(3), tasks, 3))
        assert line == (
            "a cycle: rank 0 cube 3 PE 0 (recv global_W) -> rank 2 cube 3 PE 0 (recv global_W) -> "
            "rank 1 cube 3 PE 0 (recv global_W) -> rank 0 cube 3 PE 0, all at a/mine.py:31; "
            "3 PEs wait and nothing can happen any more, at 1.500 ns"
        )
        assert report == "  3 PEs on SIPs 0 to 2, cube 3, PE 0: recv global_W at a/mine.py:31"
        assert whole.splitlines()[:4] == [line, report, "", "every wait:"]
        assert whole.splitlines()[4:13:3] == [
            f"  rank {rank} cube 3 PE 0 waits in recv global_W at a/mine.py:31, "
            f"peer rank {(rank - 1) % 3} cube 3 PE 0: message 0 has not arrived"
            for rank in (0, 2, 1)
        ]
        assert [(wait["file"], wait["line"]) for wait in facts["waits"]] == [("/home/a/mine.py", 31)] * 3

    def test_senders_into_full_rings(self) -> None:
        tasks = [waits((rank, 3, 0), "send", "global_E") for rank in range(2)]
        line, _, whole, _facts = explain_deadlock(blobs(ring_of(2), tasks, 2))
        assert whole.splitlines()[4].endswith(": 1 of its ring's 4 slots are full")
        assert line.startswith(
            "a cycle: rank 0 cube 3 PE 0 (send global_E) -> rank 1 cube 3 PE 0 (send global_E) -> rank 0 cube 3 PE 0"
        )

    def test_steps_at_different_lines(self) -> None:
        tasks = [waits((rank, 3, 0), "recv", "global_W", line=30 + rank) for rank in range(2)]
        line = explain_deadlock(blobs(ring_of(2), tasks, 2), "/home").headline
        assert line.startswith(
            "a cycle: rank 0 cube 3 PE 0 (recv global_W at a/mine.py:30) -> "
            "rank 1 cube 3 PE 0 (recv global_W at a/mine.py:31) -> rank 0 cube 3 PE 0; 2 PEs wait"
        )

    def test_a_pe_that_waits_for_the_cycle_is_not_in_it(self) -> None:
        queues = [
            *ring_of(3),
            queue((0, 2, 0), "E", (0, 3, 0), 0, 2),
            queue((0, 3, 0), "W", (0, 2, 0), 2, 0),
        ]
        tasks = [waits((0, 2, 0), "recv", "E"), *(waits((rank, 3, 0), "recv", "global_W") for rank in range(3))]
        line, report, whole, _facts = explain_deadlock(blobs(queues, tasks, 3))
        assert "; 4 PEs wait" in line
        assert "cube 2" not in line
        assert len([text for text in whole.splitlines() if " waits in " in text]) == 4
        last = "  rank 0 cube 2 PE 0: recv E at a/mine.py:31; peer rank 0 cube 3 PE 0: message 0 has not arrived"
        assert report.splitlines() == ["  3 PEs on SIPs 0 to 2, cube 3, PE 0: recv global_W at a/mine.py:31", last]

    def test_of_two_cycles_the_one_with_the_least_place_is_reported(self) -> None:
        a, b, c, d = (0, 0, 0), (0, 1, 0), (1, 0, 0), (1, 1, 0)
        queues = [queue(x, "E", y, 0, 0) for x, y in ((a, b), (b, a), (c, d), (d, c))]
        line = explain_deadlock(blobs(queues, [waits(place, "recv", "E") for place in (d, c, b, a)], 2)).headline
        assert "a cycle: rank 0 cube 0 PE 0 (recv E) -> rank 0 cube 1 PE 0 (recv E) -> rank 0 cube 0 PE 0" in line

    def test_a_pe_that_waits_for_itself(self) -> None:
        here = (0, 0, 0)
        line = explain_deadlock(blobs([queue(here, "E", here, 0, 0)], [waits(here, "recv", "E")], 1)).headline
        assert line.startswith("a cycle: rank 0 cube 0 PE 0 (recv E) -> rank 0 cube 0 PE 0, all at a/mine.py:31; 1 PE ")

    def test_none(self) -> None:
        assert cycle_of([]) == []


class TestMissingPeer:
    def test_a_missing_send(self) -> None:
        tasks = [waits((rank, 3, 0), "recv", "global_W") for rank in (0, 2)]
        line, report, whole, _facts = explain_deadlock(blobs(ring_of(3), [*tasks, host(0), host(2)], 3))
        assert line == (
            "missing: a send by rank 1 cube 3 PE 0, which waits for nothing, to rank 2 cube 3 PE 0 "
            "(its recv global_W at a/mine.py:31); 2 PEs wait and nothing can happen any more, at 1.500 ns"
        )
        assert report.splitlines() == [
            "  2 PEs on SIPs 0, 2, cube 3, PE 0: recv global_W at a/mine.py:31",
            "  ranks 0, 2: host script waits for a collective at a/script.py:7",
            "  rank 1: its script has ended",
        ]
        assert whole.splitlines()[-3:] == [
            "waits-for graph:",
            "  rank 2 cube 3 PE 0 -> rank 1 cube 3 PE 0 (recv global_W)",
            "  rank 0 cube 3 PE 0 -> rank 2 cube 3 PE 0 (recv global_W)",
        ]

    def test_a_missing_recv(self) -> None:
        line = explain_deadlock(blobs(ring_of(3), [waits((0, 3, 0), "send", "global_E")], 3)).headline
        assert line.startswith(
            "missing: a recv by rank 1 cube 3 PE 0, which waits for nothing, of what rank 0 cube 3 PE 0 sends global_E "
            "at a/mine.py:31; "
        )

    def test_the_pointers_of_both_ends(self) -> None:
        told = explain_deadlock(blobs(ring_of(3), [waits((2, 3, 0), "recv", "global_W")], 3))
        assert told.whole.splitlines() == [
            told.headline,
            "  rank 2 cube 3 PE 0: recv global_W at a/mine.py:31; peer rank 1 cube 3 PE 0: message 0 has not arrived",
            "  ranks 0 to 1: its script has ended",
            "",
            "every wait:",
            "  rank 2 cube 3 PE 0 waits in recv global_W at a/mine.py:31, peer rank 1 cube 3 PE 0: "
            "message 0 has not arrived",
            "    here:  my_head=0 my_tail=0 peer_head_cache=0 peer_tail_cache=0",
            "    there: my_head=5 my_tail=2 peer_head_cache=2 peer_tail_cache=4 (its global_E)",
            "",
            "waits-for graph:",
            "  rank 2 cube 3 PE 0 -> rank 1 cube 3 PE 0 (recv global_W)",
        ]

    def test_two_links_between_the_same_sips_are_distinguished_by_their_rings(self) -> None:
        """With two SIPs in a ring both directions lead to the same peer."""
        whole = explain_deadlock(blobs(ring_of(2), [waits((0, 3, 0), "recv", "global_W")], 2)).whole
        assert "    there: my_head=5 my_tail=2 peer_head_cache=2 peer_tail_cache=4 (its global_E)\n" in whole
        whole = explain_deadlock(blobs(ring_of(2), [waits((0, 3, 0), "recv", "global_E")], 2)).whole
        assert "(its global_W)\n" in whole

    def test_a_peer_without_a_queue_in_any_dump(self) -> None:
        """A receive-only ring: the far end is unknown and left out."""
        lonely = queue((0, 0, 0), "E", (1, 0, 0), 0, 7)
        whole = explain_deadlock(blobs([lonely], [waits((0, 0, 0), "recv", "E")], 2)).whole
        starts = [line[:8] for line in whole.splitlines()[4:]]
        assert starts == ["every wa", "  rank 0", "    here", "", "waits-fo", "  rank 0"]

    def test_only_scripts_wait(self) -> None:
        line, report, _, facts = explain_deadlock(blobs(ring_of(2), [host(1)], 2))
        assert line.startswith("the host scripts wait, and no kernel is left to resume them; nothing can ")
        where = "  rank 1: host script waits for a collective at a/script.py:7"
        assert report == f"{where}\n  rank 0: its script has ended"
        assert [(each["file"], each["line"]) for each in facts["others"]] == [("/home/a/script.py", 7)]

    def test_a_kernel_waits_for_a_command(self) -> None:
        """It is in no queue, so it is no part of the graph, but it waits all the same."""
        tasks = [TaskState((rank, 1, 0), "cube 1, PE 0", "Fill", "", ()) for rank in (1, 0)]
        line, report, _, facts = explain_deadlock(blobs(ring_of(2), [*tasks, host(1)], 2))
        assert line.startswith("rank 0 cube 1 PE 0 waits for Fill, which nothing will end; 2 PEs wait")
        assert report.splitlines()[0] == "  2 PEs on SIPs 0 to 1, cube 1, PE 0: waits for Fill"
        assert facts["waits"] == []

    def test_a_chain_has_one_root(self) -> None:
        """0 waits for 1, 1 for 2, 2 for 3, which does not wait: only the last is the cause."""
        tasks = [waits((rank, 3, 0), "recv", "global_E") for rank in (0, 1, 2)]
        line, _, whole, _facts = explain_deadlock(blobs(ring_of(4), tasks, 4))
        assert line.startswith("missing: a send by rank 3 cube 3 PE 0")
        named = [text.split(" waits")[0].strip() for text in whole.splitlines() if " waits in " in text]
        assert named == [f"rank {rank} cube 3 PE 0" for rank in (2, 0, 1)]


class TestHints:
    """What is likelier than a cycle or a missing message comes first, and that second."""

    def unread(self, place: Place, direction: str, peer: Place, messages: int = 2) -> QueueState:
        """A ring with messages that were not received."""
        return queue(place, direction, peer, 5, 6, 0, 0, messages, 0)

    def test_a_wrong_direction_of_all(self) -> None:
        ring, tasks = ring_of(3), [waits((rank, 3, 0), "recv", "global_W") for rank in range(3)]
        messages = [self.unread((rank, 3, 0), "global_E2", ((rank + 1) % 3, 3, 0)) for rank in range(3)]
        line, report, _, facts = explain_deadlock(blobs([*ring[1::2], *messages], tasks, 3))
        assert line.startswith(
            "perhaps a wrong direction: 3 PEs on SIPs 0 to 2, cube 3, PE 0 wait in recv global_W at a/mine.py:31, "
            "with unread messages from global_E2; 3 PEs wait and nothing "
        )
        assert report.splitlines()[0].startswith("  a cycle: rank 0 cube 3 PE 0 (recv global_W) -> ")
        assert facts["hint"].startswith("perhaps a wrong direction: ")
        assert facts["reason"].startswith("a cycle: ")

    def test_a_wrong_direction_of_some(self) -> None:
        """It may as well be a message that came early, so that the cycle comes first."""
        ring, tasks = ring_of(3), [waits((rank, 3, 0), "recv", "global_W") for rank in range(3)]
        early = self.unread((1, 3, 0), "N", (2, 3, 0))
        line, report, _, _facts = explain_deadlock(blobs([*ring[1::2], early], tasks, 3))
        assert line.startswith("a cycle: ")
        assert report.splitlines()[0] == (
            "  perhaps a wrong direction: rank 1 cube 3 PE 0 waits in recv global_W at a/mine.py:31, "
            "with unread messages from N"
        )
        assert "  rank 1 cube 3 PE 0: recv global_W at a/mine.py:31; unread messages from N; peer " in report

    def test_a_message_sent_elsewhere(self) -> None:
        """Rank 1 has sent to rank 0 what rank 2 waits for."""
        task = waits((2, 3, 0), "recv", "global_W")
        sent = queue((1, 3, 0), "up", (0, 3, 0), 6, 5)
        queues = [*ring_of(3)[1::2], sent, self.unread((0, 3, 0), "down", (1, 3, 0))]
        line, report, _, _facts = explain_deadlock(blobs(queues, [task], 3))
        assert line.startswith("missing: a send by rank 1 cube 3 PE 0")
        assert report.splitlines()[0] == (
            "  perhaps a wrong direction: rank 1 cube 3 PE 0 has sent 2 in direction up to rank 0 cube 3 PE 0, "
            "which has not received them"
        )

    def test_ranks_that_called_other_collectives(self) -> None:
        task = waits((2, 3, 0), "recv", "global_W")
        line, report, _, _facts = explain_deadlock(blobs(ring_of(3), [task, host(2), host(0)], 3, calls=(2, 1, 2)))
        assert line.startswith(
            "ranks called other collectives: the script of rank 1 has ended after 1 call, ranks 0, 2 made 2; "
        )
        assert report.splitlines()[0].startswith("  missing: a send by rank 1 ")

    def test_a_rank_that_is_behind_and_still_waits_has_called_no_other_collectives(self) -> None:
        line = explain_deadlock(blobs(ring_of(2), [host(0), host(1)], 2, calls=(2, 1))).headline
        assert line.startswith("the host scripts wait")


@pytest.mark.parametrize("blob", [b"", b"{}", b'{"rank": "one"}', b"\xff"])
def test_bytes_that_are_no_dump_are_refused(blob: bytes) -> None:
    with pytest.raises(BadFrame, match=r"^not the dump of a SIP: [EJOI]"):
        explain_deadlock([blob])
