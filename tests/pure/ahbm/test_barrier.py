"""The barrier of all SIPs: its tree and times, and control packets that do not fit it."""

from typing import Any

import pytest
from hardware import config
from msgspec.structs import replace
from wire_packets import barrier_packet

from sipsim.chips.ahbm.barrier import AGAIN, END, NO_COUNTS, START, Barrier, BarrierPacket, Counts
from sipsim.chips.ahbm.plan import Plan
from sipsim.core.engine import ARRIVAL, Engine
from sipsim.core.errors import InvariantViolation
from sipsim.fabric.links.frames import decode
from sipsim.records.recorder import Recorder

PLAN = Plan(config({"system.sips.count": 5, "sip.cube_mesh": {"w": 2, "h": 1}}))
TREE = PLAN.barrier_tree


class Session:
    """Keeps what is sent: (channel, arrival, packet). ``others``: packets sent and arrived besides the barrier's."""

    def __init__(self) -> None:
        self.engine = Engine()
        self.sent: list[tuple[int, int, Any]] = []
        self.others = NO_COUNTS
        self.arrived = 0

    @property
    def packets_sent(self) -> int:
        return self.others.sent + len(self.sent)

    @property
    def packets_arrived(self) -> int:
        return self.others.arrived + self.arrived

    def emit(self, channel: int, arrival_ps: int, body: bytes) -> None:
        self.sent.append((channel, arrival_ps, decode(body)))


def barrier(sip: int) -> tuple[Barrier, Session]:
    session = Session()
    return Barrier(sip, PLAN, session, Recorder(sip)), session  # type: ignore[arg-type]


def test_the_tree_of_a_ring() -> None:
    assert TREE.parent == {1: 0, 4: 0, 2: 1, 3: 4}
    assert TREE.children == {0: [1, 4], 1: [2], 2: [], 3: [], 4: [3]}
    for (src, dst), channel in TREE.channels.items():
        assert PLAN.channels[channel][:2] == (src, dst)
        assert TREE.hop_ps[src, dst] == PLAN.egress_ps[src] + PLAN.channels[channel].delay_ps
    assert TREE.gap_ps == 4 * TREE.hop_ps[0, 1]


def test_the_latest_end_goes_up_once_all_ends_of_a_subtree_are_known() -> None:
    for steps in (("child", "own"), ("own", "child")):
        made, session = barrier(1)
        for step in steps:
            assert session.sent == []
            if step == "own":
                made.enter(lambda _span: None, 3)
            else:
                made.receive(TREE.channels[2, 1], barrier_packet(END, False, 700))
        cause = 3 if steps[-1] == "own" else 1
        assert session.sent == [(TREE.channels[1, 0], TREE.hop_ps[1, 0], barrier_packet(END, False, 700, span=cause))]


def test_the_root_sends_the_start() -> None:
    made, session = barrier(0)
    started: list[int] = []
    for latest_ps in (700, 10**6):
        made.enter(lambda _span: started.append(session.engine.now_ps), 0)
        made.receive(TREE.channels[4, 0], barrier_packet(END, False, 5))
        made.receive(TREE.channels[1, 0], barrier_packet(END, False, latest_ps))
        start = barrier_packet(START, False, latest_ps + TREE.gap_ps)
        assert [replace(packet, sent_ps=0, span=0) for *_, packet in session.sent[-2:]] == [start, start]
        session.engine.run_before(None, 1)
        assert started[-1] == start.time_ps


@pytest.mark.parametrize(
    ("sip", "way", "packet"),
    [
        (1, (0, 1), barrier_packet(START, False, 9)),
        (1, (0, 1), barrier_packet(AGAIN, True, 0)),
        (1, (0, 1), barrier_packet(END, False, 9)),
        (1, (2, 1), barrier_packet(START, False, 9)),
        (2, (3, 2), barrier_packet(END, False, 9)),
        (0, (1, 0), barrier_packet(END, False, 2**63 - 1)),
    ],
    ids=[
        "start of no round",
        "round of none",
        "end from the parent",
        "start from a child",
        "no edge of the tree",
        "too late",
    ],
)
def test_a_packet_that_does_not_fit_is_refused(sip: int, way: tuple[int, int], packet: BarrierPacket) -> None:
    made, session = barrier(sip)
    channel = next(n for n, channel in enumerate(PLAN.channels) if channel[:2] == way)
    with pytest.raises(InvariantViolation, match=rf"^SIP {way[0]} sent .* barrier of SIP {sip} "):
        made.receive(channel, packet)
    assert session.sent == []


def test_a_second_end_of_one_round_is_refused() -> None:
    made, _ = barrier(0)
    made.receive(TREE.channels[1, 0], barrier_packet(END, False, 5))
    with pytest.raises(InvariantViolation):
        made.receive(TREE.channels[1, 0], barrier_packet(END, False, 5))


@pytest.mark.parametrize(("is_row", "kind"), [(True, START), (False, AGAIN)])
def test_an_iteration_and_a_row_start_do_not_meet(is_row: bool, kind: int) -> None:
    made, _ = barrier(1)
    made.enter(lambda _span: None, 0, is_row)
    made.receive(TREE.channels[2, 1], barrier_packet(END, is_row, 5))
    with pytest.raises(InvariantViolation):
        made.receive(TREE.channels[0, 1], barrier_packet(kind, not is_row, 9))


def rounds(root: Barrier, session: Session, counts: list[tuple[int, int]]) -> list[int]:
    """What SIP 0 sends to its two neighbours after each round, of which one counts (sent, arrived), the other none."""
    told = []
    for each in counts:
        for src, subtree in ((1, Counts(*each)), (4, NO_COUNTS)):
            session.arrived += 1
            root.receive(TREE.channels[src, 0], barrier_packet(END, True, 5, subtree))
        kinds = {packet.kind for *_, packet in session.sent[-2:]}
        told += kinds
    return told


@pytest.mark.parametrize(
    ("counts", "told"),
    [
        ([(0, 0), (0, 0)], [AGAIN, START]),
        ([(7, 7), (7, 7)], [AGAIN, START]),
        ([(7, 6), (7, 7), (7, 7)], [AGAIN, AGAIN, START]),
        ([(7, 7), (8, 8), (8, 8)], [AGAIN, AGAIN, START]),
        ([(7, 6), (7, 6), (7, 7), (9, 9), (9, 9)], [AGAIN, AGAIN, AGAIN, AGAIN, START]),
    ],
    ids=["nothing", "all arrived", "one on its way", "one in between", "long"],
)
def test_a_row_starts_when_two_rounds_have_counted_alike(counts: list[tuple[int, int]], told: list[int]) -> None:
    made, session = barrier(0)
    made.enter(lambda _span: None, 0, is_row=True)
    assert rounds(made, session, counts) == told


def test_a_round_of_a_row_start_ends_when_no_own_event_is_left() -> None:
    """Also one that an event on the way has made; and packets that are to come do not count."""
    made, session = barrier(2)
    engine = session.engine
    engine.at(50, lambda: engine.at(90, lambda: None))
    engine.at(60, lambda: None)
    engine.at(500, lambda: None, ARRIVAL)
    made.enter(lambda _span: None, 0, is_row=True)
    engine.run_before(400, 100)
    assert [(arrival, packet.time_ps) for _, arrival, packet in session.sent] == [(90 + TREE.hop_ps[2, 1], 90)]


def test_a_packet_that_comes_between_the_last_round_and_the_start_is_seen() -> None:
    made, session = barrier(0)
    made.enter(lambda _span: None, 0, is_row=True)
    rounds(made, session, [(1, 1), (1, 1)])
    session.others = Counts(0, 1)
    with pytest.raises(InvariantViolation, match="in flight"):
        session.engine.run_before(None, 100)
