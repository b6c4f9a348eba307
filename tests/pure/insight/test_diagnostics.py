"""The report of a deadlock, from dumps made by hand: a cycle, or a missing send or recv."""

import msgspec
import pytest

from broker.wire import BadFrame
from sipsim.insight.hangs.deadlock import explain_deadlock
from sipsim.insight.hangs.waits import cycle_of
from sipsim.records.dump import QueueState, SipDump, TaskState

Place = tuple[int, int, int]
RING_BYTES = 4096


def ring(place: Place, number: int) -> int:
    """The address of a place's receive ring."""
    return (place[0] * 1000 + place[1] * 10 + number) * RING_BYTES


def queue(place: Place, direction: str, peer: Place, mine: int, theirs: int, *pointers: int) -> QueueState:
    """Ring ``mine`` of this place and ring ``theirs`` of its peer; pointers in the order of ADR-0023."""
    of_ring = (ring(place, mine), RING_BYTES)
    return QueueState(*place, direction, *(pointers or (0,) * 4), *of_ring, peer, ring(peer, theirs), 4)


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


A, B, C, D = (0, 0, 0), (0, 1, 0), (1, 0, 0), (1, 1, 0)
OUTSIDE = [queue((0, 2, 0), "E", (0, 3, 0), 0, 2), queue((0, 3, 0), "W", (0, 2, 0), 2, 0)]


def all_wait(ranks: int, op: str, direction: str) -> list[TaskState]:
    return [waits((rank, 3, 0), op, direction) for rank in range(ranks)]


CYCLES = {
    "receivers": (ring_of(3), all_wait(3, "recv", "global_W"), [(0, 3, 0), (2, 3, 0), (1, 3, 0)]),
    "senders into full rings": (ring_of(2), all_wait(2, "send", "global_E"), [(0, 3, 0), (1, 3, 0)]),
    "a PE that waits for the cycle is not in it": (
        [*ring_of(3), *OUTSIDE],
        [waits((0, 2, 0), "recv", "E"), *all_wait(3, "recv", "global_W")],
        [(0, 3, 0), (2, 3, 0), (1, 3, 0)],
    ),
    "of two cycles the one with the least place": (
        [queue(x, "E", y, 0, 0) for x, y in ((A, B), (B, A), (C, D), (D, C))],
        [waits(place, "recv", "E") for place in (D, C, B, A)],
        [A, B],
    ),
    "a PE that waits for itself": ([queue(A, "E", A, 0, 0)], [waits(A, "recv", "E")], [A]),
}
REASONS = {
    "a missing send": (3, [waits((rank, 3, 0), "recv", "global_W") for rank in (0, 2)], "a send by rank 1 cube 3 PE 0"),
    "a missing recv": (3, [waits((0, 3, 0), "send", "global_E")], "a recv by rank 1 cube 3 PE 0"),
    # 0 waits for 1, 1 for 2, 2 for 3, which does not wait: only the last is the cause.
    "a chain has one root": (4, all_wait(3, "recv", "global_E"), "a send by rank 3 cube 3 PE 0"),
}


@pytest.mark.parametrize("case", CYCLES)
def test_cycles(case: str) -> None:
    queues, tasks, cycle = CYCLES[case]
    told = explain_deadlock(blobs(queues, tasks, 1 + max(each.place[0] for each in queues)))
    assert [tuple(place) for place in told.facts["cycle"]] == cycle
    ends = [f"rank {sip} cube {cube} PE {pe}" for sip, cube, pe in cycle]
    named = [part.partition(" (")[0].partition(",")[0] for part in told.headline.split(": ")[1].split(" -> ")]
    assert (told.headline[:9], named) == ("a cycle: ", [*ends, ends[0]])
    assert [(wait["file"], wait["line"]) for wait in told.facts["waits"]] == [("/home/a/mine.py", 31)] * len(tasks)
    assert told.whole.count(" waits in ") == len(tasks)


def test_steps_at_different_lines() -> None:
    tasks = [waits((rank, 3, 0), "recv", "global_W", line=30 + rank) for rank in range(2)]
    line = explain_deadlock(blobs(ring_of(2), tasks, 2), "/home").headline
    assert "rank 0 cube 3 PE 0 (recv global_W at a/mine.py:30) -> rank 1" in line


def test_none() -> None:
    assert cycle_of([]) == []


class TestMissingPeer:
    @pytest.mark.parametrize("case", REASONS)
    def test_the_peer_that_waits_for_nothing_is_named(self, case: str) -> None:
        ranks, tasks, missing = REASONS[case]
        told = explain_deadlock(blobs(ring_of(ranks), [*tasks, host(0)], ranks))
        assert told.headline.startswith(f"missing: {missing}, which waits for nothing")
        assert (told.facts["cycle"], len(told.facts["waits"])) == ([], len(tasks))
        assert "  rank 0: host script waits for a collective at a/script.py:7" in told.report.splitlines()
        states, _, ends = told.report.partition("\n  pointers of the queue pairs with a waiting PE:\n")
        assert states.endswith("its script has ended")
        assert ends.count("my_head=") == 2 * len(tasks)

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
