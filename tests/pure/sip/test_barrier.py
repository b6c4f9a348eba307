"""The barrier of all SIPs: its tree and times, and control packets that do not fit it."""

from typing import Any

import pytest
from hardware import config

from sipsim.engine import Engine
from sipsim.errors import InvariantViolation
from sipsim.io.barrier import Barrier, BarrierPacket
from sipsim.links.frames import decode
from sipsim.plan.plan import Plan
from sipsim.record.recorder import Recorder

PLAN = Plan(config({"system.sips.count": 5, "sip.cube_mesh": {"w": 2, "h": 1}}))
TREE = PLAN.barrier_tree


class Session:
    """Keeps what is sent: (channel, arrival, packet)."""

    def __init__(self) -> None:
        self.engine = Engine()
        self.sent: list[tuple[int, int, Any]] = []

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
        assert TREE.hop_ps[src, dst] == PLAN.control_ps[src] + PLAN.channels[channel].delay_ps
    assert TREE.gap_ps == 4 * TREE.hop_ps[0, 1]


def test_the_latest_end_goes_up_once_all_ends_of_a_subtree_are_known() -> None:
    for steps in (("child", "own"), ("own", "child")):
        made, session = barrier(1)
        for step in steps:
            assert session.sent == []
            if step == "own":
                made.enter(lambda _span: None, 3)
            else:
                made.receive(TREE.channels[2, 1], BarrierPacket(False, 700))
        cause = 3 if steps[-1] == "own" else 1
        assert session.sent == [(TREE.channels[1, 0], TREE.hop_ps[1, 0], BarrierPacket(False, 700, 0, cause))]


def test_the_root_sends_the_start() -> None:
    made, session = barrier(0)
    started: list[int] = []
    for latest_ps in (700, 10**6):
        made.enter(lambda _span: started.append(session.engine.now_ps), 0)
        made.receive(TREE.channels[4, 0], BarrierPacket(False, 5))
        made.receive(TREE.channels[1, 0], BarrierPacket(False, latest_ps))
        start = BarrierPacket(True, latest_ps + TREE.gap_ps)
        assert [packet[:2] for *_, packet in session.sent[-2:]] == [start[:2], start[:2]]
        session.engine.run_before(None, 1)
        assert started[-1] == start.time_ps


@pytest.mark.parametrize(
    ("sip", "way", "packet"),
    [
        (1, (0, 1), BarrierPacket(True, 9)),
        (1, (0, 1), BarrierPacket(False, 9)),
        (1, (2, 1), BarrierPacket(True, 9)),
        (2, (3, 2), BarrierPacket(False, 9)),
        (0, (1, 0), BarrierPacket(False, 2**63 - 1)),
    ],
    ids=["start of no round", "end from the parent", "start from a child", "no edge of the tree", "too late"],
)
def test_a_packet_that_does_not_fit_is_refused(sip: int, way: tuple[int, int], packet: BarrierPacket) -> None:
    made, session = barrier(sip)
    channel = next(n for n, channel in enumerate(PLAN.channels) if channel[:2] == way)
    with pytest.raises(InvariantViolation, match=rf"from SIP {way[0]} to SIP {sip} with .* the barrier waits for"):
        made.receive(channel, packet)
    assert session.sent == []


def test_a_second_end_of_one_round_is_refused() -> None:
    made, _ = barrier(0)
    made.receive(TREE.channels[1, 0], BarrierPacket(False, 5))
    with pytest.raises(InvariantViolation):
        made.receive(TREE.channels[1, 0], BarrierPacket(False, 5))
