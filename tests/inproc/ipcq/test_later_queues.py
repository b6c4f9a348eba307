"""Queue pairs that are made while time runs, on several SIPs: far peers, early messages, shuffled mail."""

from collections.abc import Callable
from itertools import count

import pytest
from hardware import WiredPlan, config, records_of, tcm
from later import later
from sips import check_second_passes, run_sips, spawn

from launcher.engines.inproc import InProcess
from sipsim.chips.ahbm.address import PePlace
from sipsim.chips.ahbm.collectives.neighbours import NeighbourTable
from sipsim.chips.ahbm.collectives.queue_pairs import InstallPlan
from sipsim.chips.ahbm.costs.prices import sum_ps
from sipsim.chips.ahbm.costs.probe import Probe, ProbePlan
from sipsim.chips.ahbm.tl.language import TL
from sipsim.core.errors import InvariantViolation
from sipsim.core.session import Session
from sipsim.node.sip_node import SipNode

US = 1_000_000
NEAR = "sip.cube_mesh.w", "sip.cube_mesh.h"


def plan_of(sips: int, **more: object) -> WiredPlan:
    """A ring of SIPs of one cube, wired to their neighbours, as the bounds of control packets need it."""
    settings = {"system.sips.count": sips, "system.sips.topology": "ring_1d", **dict.fromkeys(NEAR, 1), **more}
    places = [PePlace(sip, 0, 0) for sip in range(sips)]
    table: NeighbourTable = {sip: {"E": (sip + 1) % sips, "W": (sip - 1) % sips} for sip in range(sips)}
    return WiredPlan(config(settings), places, table)


class Groups:
    """Generations of a run: ``places`` by rank, and the table, by number."""

    def __init__(self, plan: WiredPlan, groups: dict[int, tuple[list[PePlace], NeighbourTable]]) -> None:
        self.groups = groups
        above = count(2**18, 2**17)
        self.plans: dict[int, InstallPlan] = {
            number: later(plan, places, table, next(above)) for number, (places, table) in groups.items()
        }

    def start(self, member: SipNode, number: int, at_ps: int, kernel: Callable[[TL], None]) -> None:
        """At a time, install a generation and run a kernel with it on its PEs of one SIP."""
        sip, (places, _) = member.chip.sip, self.groups[number]
        here = [place for place in places if place.sip == sip.sip]

        def begin() -> None:
            sip.install(number, self.plans[number], places)
            for place in here:
                sip.pe(place.cube, place.pe).ipcq.use(number)
                spawn(sip, place.cube, place.pe, kernel)

        if here:
            sip.engine.at(at_ps, begin)


def told(engine: InProcess) -> list[tuple[str, int]]:
    """What may not depend on the mail."""
    return [(member.chip.sip.oplog.sha256(), member.chip.sip.engine.now_ps) for member in engine.members]


def exchange(tl: TL) -> None:
    """With each neighbour, in both directions, more messages than a ring has slots."""
    mine = tcm(0, 0, tl.program_id(0), tl.program_id(2))
    ways = [way for way in ("A", "B", "C") if tl.has_direction(way)]
    for turn in range(10):
        for way in ways:
            tl.send(way, src_addr=mine, shape=1 + turn, dtype="i32")
        for way in ways:
            tl.recv(way, 1 + turn, "i32")


@pytest.mark.parametrize("mode", ["fast_path", "fabric", "piggyback", "auto"])
@pytest.mark.parametrize("sips", [2, 9])
def test_groups_made_at_any_time_do_the_same_with_any_mail(sips: int, mode: str) -> None:
    """Each SIP installs two generations at times of its own, on PEs that nobody has used; messages come before."""
    plan = plan_of(sips, **{"defaults.credit_return_mode": mode})
    far = sips // 2
    pair = [PePlace(0, 0, 3), PePlace(far, 0, 5)]
    ring = [PePlace(sip, 0, 2) for sip in range(sips)]
    table: NeighbourTable = {r: {"A": (r + 1) % sips, "B": (r - 1) % sips} for r in range(sips)}
    if sips == 2:
        table = {0: {"A": 1}, 1: {"A": 0}}
    groups = Groups(plan, {1: (pair, {0: {"C": 1}, 1: {"C": 0}}), 2: (ring, table)})

    def start(member: SipNode) -> None:
        groups.start(member, 1, member.rank * US, exchange)
        groups.start(member, 2, (member.rank * 7 % 5) * US // 3, opposite(exchange))

    runs = [run_sips(plan, start, seed) for seed in range(3)]
    assert told(runs[0]) == told(runs[1]) == told(runs[2])
    for run in runs:
        assert run.outcome.error is None
        assert check_second_passes(run) == 2 * 10 * (2 + sips * len(table[0]))
    sent = records_of(runs[0].members[0].chip.sip, "ipcq.send")
    assert {line.fields["dir"] for line in sent} == {"C#1", "A#2", "B#2"} - ({"B#2"} if sips == 2 else set())
    if sips > 2 and mode in ("fast_path", "auto"):
        assert all(run.members[0].session._chain_delays_ps[far] for run in runs)


def opposite(kernel: Callable[[TL], None]) -> Callable[[TL], None]:
    """What is sent by A comes from B, if there is B."""

    def body(tl: TL) -> None:
        if not tl.has_direction("B"):
            kernel(tl)
            return
        mine = tcm(0, 0, tl.program_id(0), tl.program_id(2))
        for turn in range(10):
            for way in ("A", "B"):
                tl.send(way, src_addr=mine, shape=1 + turn, dtype="i32")
            for way in ("B", "A"):
                tl.recv(way, 1 + turn, "i32")

    return body


def far_pair(both_ways: bool) -> tuple[WiredPlan, Callable[[SipNode], None]]:
    """SIPs 0 and 4 of nine, four hops apart, exchange a message each, at times that do not meet."""
    plan = plan_of(9)
    pair = [PePlace(0, 0, 0), PePlace(4, 0, 0)]
    groups = Groups(plan, {1: (pair, {0: {"far": 1}, 1: {"far": 0}})})

    def kernel(tl: TL) -> None:
        mine, turns = tcm(0, 0, 0, tl.program_id(2)), (0, 1) if both_ways else (0,)
        for sender in turns:
            if tl.rank() == sender:
                tl.send("far", src_addr=mine, shape=256, dtype="f16")
            else:
                tl.recv("far", 256, "f16")

    return plan, lambda member: groups.start(member, 1, US, kernel)


@pytest.mark.ideal
@pytest.mark.parametrize("mail_seed", range(3))
def test_a_far_pair_takes_the_sum_of_the_probe(mail_seed: int) -> None:
    """Message and credit, four hops each way; the answer is sent when the first message's credit has left."""
    plan, start = far_pair(both_ways=True)
    run = run_sips(plan, start, mail_seed)
    assert run.outcome.error is None
    (received,) = records_of(run.members[4].chip.sip, "ipcq.recv")
    ends = (PePlace(0, 0, 0), PePlace(4, 0, 0)), (PePlace(4, 0, 0), PePlace(0, 0, 0))
    sums = [sum_ps(Probe(ProbePlan(plan.resolved, *way), 512).pair()) for way in ends]
    assert received.end_ps - US == sums[0]
    (sent,) = records_of(run.members[4].chip.sip, "ipcq.send")
    (answer,) = records_of(run.members[0].chip.sip, "ipcq.recv")
    assert answer.end_ps - sent.end_ps == sums[1]


def test_a_far_credit_that_is_emitted_too_early_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: it takes what one link takes."""
    real = Session.emit_far
    near_ps = 20_000

    def early(session: Session, dst: int, arrival_ps: int, body: bytes) -> None:
        real(session, dst, session.engine.now_ps + near_ps, body)

    monkeypatch.setattr(Session, "emit_far", early)
    plan, start = far_pair(both_ways=False)
    run = run_sips(plan, start)
    assert run.outcome.error is not None
    assert run.outcome.error.kind == InvariantViolation.kind
    assert "a far packet from SIP 4 to SIP 0" in run.outcome.error.message
