"""Credits between SIPs in the three modes, to the picosecond: to the next SIP, and through one that is between.

A line of SIPs of one cube, joined by UCIe of 64 GB/s: a credit of 16 B takes 0.25 ns, the link 10. From PE 0 of the
last one to PE 0 of SIP 0, W all the way: PE 1, two routers, port 2, wires 0.05 + 0.25 + 0.1; the link; in by E: port 2,
five routers, PE 1, wires 0.1 + 4 * 0.25 + 0.05. What passes through a SIP has four routers and both ports, wires
0.1 + 3 * 0.25 + 0.1, and another link.
"""

import pytest
from hardware import WiredPlan, config, records_of, tcm
from sips import pause, run_sips, spawn

from sipsim.ccl.install import PePlace
from sipsim.node.sip_node import SipNode
from sipsim.tl.language import TL

OUT_BY_W, IN_BY_E, LINK, CREDIT, THROUGH = 5_400, 9_150, 10_000, 250, 8_950
IPCQ, PE = 1_000, 1_000
DIRECT = IPCQ + OUT_BY_W + LINK + IN_BY_E + CREDIT
WAYS = {2: DIRECT, 3: DIRECT + THROUGH + LINK}
"""From the step in which a slot is freed to the credit's arrival, by the number of SIPs in the line."""
TAKE_PS = 1_000_000


class Ends:
    """PE 0 of SIP 0 sends two messages into one slot; PE 0 of the last SIP runs ``then`` from 1 us on."""

    def __init__(self, sips: int, mode: str, *then: str, **defaults: object) -> None:
        line = {"system.sips.count": sips, "system.sips.topology": "mesh_2d_no_wrap", "system.sips.shape": [sips, 1]}
        knobs = {"credit_return_mode": mode, "n_slots": 1, "virtual_channels": False, **defaults}
        settings = {**line, "sip.cube_mesh": {"w": 1, "h": 1}, **{f"defaults.{k}": v for k, v in knobs.items()}}
        places = [PePlace(0, 0, 0), PePlace(sips - 1, 0, 0)]
        self.then = then
        self.credits: list[tuple[int, int]] = []
        plan = WiredPlan(config(settings), places, {0: {"away": 1}, 1: {"home": 0}})
        self.engine = run_sips(plan, self.start)
        assert self.engine.outcome.error is None, self.engine.outcome.error.message
        self.sips = [member.chip.sip for member in self.engine.members]
        self.sent = [record.end_ps for record in records_of(self.sips[0], "ipcq.send")]
        self.received = [record.end_ps for record in records_of(self.sips[-1], "ipcq.recv")]

    def start(self, member: SipNode) -> None:
        sip = member.chip.sip
        if member.rank == 0:
            ipcq, real = sip.pe(0, 0).ipcq, sip.pe(0, 0).ipcq.credit

            def noted(credit: object) -> None:
                self.credits.append((sip.engine.now_ps, credit.consumer_seq))  # type: ignore[attr-defined]
                real(credit)  # type: ignore[arg-type]

            ipcq.credit = noted  # type: ignore[method-assign,assignment]
            spawn(sip, 0, 0, lambda tl: [tl.send("away", src_addr=tcm(0, 0), shape=16, dtype="i32") for _ in "12"])
        elif member.rank == member.plan.system.n_sips - 1:
            spawn(sip, 0, 0, lambda tl: self.receive(member, tl))

    def receive(self, member: SipNode, tl: TL) -> None:
        pause(member.chip.sip, 0, 0, TAKE_PS)
        for step in self.then:
            if step == "recv":
                tl.recv("home", 16, "i32")
            elif step == "pause":
                pause(member.chip.sip, 0, 0, 10_000)
            else:
                tl.send("home", src_addr=tcm(0, 0, sip=member.rank), shape=int(step), dtype="i32")


@pytest.mark.parametrize("sips", WAYS)
@pytest.mark.parametrize(
    ("mode", "blocked_ps", "later_ps"),
    [("fast_path", None, 0), ("fabric", IPCQ + PE + CREDIT, 0), ("piggyback", 0, 100_000)],
)
def test_a_credit_alone_takes_the_whole_way(sips: int, mode: str, blocked_ps: int | None, later_ps: int) -> None:
    """Over the links, its 16 B once, however many SIPs it passes. On its own wire it takes as long, and so does
    recv.
    """
    ends = Ends(sips, mode, "recv")
    arrived_ps = TAKE_PS + later_ps + WAYS[sips]
    assert ends.received == [TAKE_PS + (WAYS[sips] if blocked_ps is None else blocked_ps)]
    assert ends.credits == [(arrived_ps, 1)]
    assert ends.sent == [0, arrived_ps]
    assert ends.sips[-1].session.packets_sent == 1


@pytest.mark.parametrize("sips", WAYS)
def test_a_credit_over_the_fabric_waits_on_the_links_with_data(sips: int) -> None:
    """4096 B take the same route before: the credit is right behind them on the last link, in every SIP."""
    ends = Ends(sips, "fabric", "1024", "recv")
    token_ps = data_arrival(ends)
    assert ends.credits == [(token_ps + CREDIT, 1)]
    free = Ends(sips, "fast_path", "1024", "recv")
    assert free.credits == [(TAKE_PS + WAYS[sips], 1)]
    assert free.credits < ends.credits


def data_arrival(ends: Ends) -> int:
    """The arrival of the last byte of 4096 at PE 0 of SIP 0: 64 ns at 64 GB/s, and the route."""
    way_ps = WAYS[len(ends.sips)] - CREDIT
    return TAKE_PS + way_ps + 64_000


@pytest.mark.parametrize("sips", WAYS)
def test_a_credit_is_piggybacked_over_links(sips: int) -> None:
    """No credit is sent alone: it arrives with the message of 64 B, 1 ns, whose write is included."""
    ends = Ends(sips, "piggyback", "recv", "pause", "16")
    arrived_ps = TAKE_PS + 10_000 + WAYS[sips] - CREDIT + 1_000 + 1_000
    assert ends.received == [TAKE_PS]
    assert ends.credits == [(arrived_ps, 1)]
    assert ends.sent == [0, arrived_ps]
    assert ends.sips[-1].session.packets_sent == 1
