"""Credits between SIPs in the three modes, to the picosecond: to the next SIP, and through one that is between.

A line of SIPs of one cube, joined by UCIe of 64 GB/s: a credit of 16 B takes 0.25 ns, the link 10. From PE 0 of the
last one to PE 0 of SIP 0, W all the way: PE 1, two routers, port 2, wires 0.05 + 0.25 + 0.1; the link; in by E: port 2,
five routers, PE 1, wires 0.1 + 4 * 0.25 + 0.05. What passes through a SIP has four routers and both ports, wires
0.1 + 3 * 0.25 + 0.1, and another link.
"""

from typing import Any, NamedTuple

import pytest

from ahbm_sim.testing import simulate

OUT_BY_W, IN_BY_E, LINK, CREDIT, THROUGH = 5_400, 9_150, 10_000, 250, 8_950
IPCQ, PE = 1_000, 1_000
DIRECT = IPCQ + OUT_BY_W + LINK + IN_BY_E + CREDIT
WAYS = {2: DIRECT, 3: DIRECT + THROUGH + LINK}
"""From the step in which a slot is freed to the credit's arrival, by the number of SIPs in the line."""


class Ends(NamedTuple):
    """From the start of the last SIP's receive: when the credit freed the sender's one slot, when the receive ended.
    ``packets``: how many that SIP sent, until the second message was received, too.
    """

    credited_ps: int
    received_ps: int
    packets: int


def ends(sips: int, mode: str, *then: str) -> Ends:
    """PE 0 of SIP 0 sends two messages into one slot; PE 0 of the last SIP runs ``then`` from about 1 us on: ``recv``,
    ``pause`` for 10 ns, or the elements of a message that it sends back.
    """
    first, last = (0, 0, 0), (sips - 1, 0, 0)

    def send(tl: Any) -> None:
        for value in [tl.zeros(16, "i32") for _ in range(2)]:
            tl.send("away", value)
        for step in filter(str.isdigit, then):
            tl.recv("away", int(step), "i32")

    def receive(tl: Any) -> None:
        values = {step: tl.zeros(int(step), "i32") for step in then if step.isdigit()}
        tl.delay(1_000)
        for step in then:
            if step in values:
                tl.send("home", values[step])
            else:
                tl.recv("home", 16, "i32") if step == "recv" else tl.delay(10)
        tl.delay(1_000)
        tl.recv("home", 16, "i32")

    knobs = {"credit_return_mode": mode, "n_slots": 1, "virtual_channels": False}
    done = simulate(
        {first: send, last: receive},
        wires={(first, "away"): last, (last, "home"): first},
        sips=sips,
        cubes=(1, 1),
        topology="mesh_2d_no_wrap",
        shape=f"{sips}x1",
        set={f"defaults.{key}": value for key, value in knobs.items()},
        mail=0,
        check_invariants=True,
    )
    assert done.error is None, done.error
    (received, _), (_, blocked) = done.ops("ipcq.recv", last), done.ops("ipcq.send", first)
    since = received.start_ps
    return Ends(blocked.end_ps - since, received.end_ps - since, done.document["ranks"][-1]["packets_sent"])


@pytest.mark.ideal
@pytest.mark.parametrize("sips", WAYS)
@pytest.mark.parametrize(
    ("mode", "blocked_ps", "later_ps"),
    [("fast_path", None, 0), ("fabric", IPCQ + PE + CREDIT, 0), ("piggyback", 0, 100_000)],
)
def test_a_credit_alone_takes_the_whole_way(sips: int, mode: str, blocked_ps: int | None, later_ps: int) -> None:
    """Over the links, its 16 B once, however many SIPs it passes. On its own wire it takes as long, and so does
    recv.
    """
    received_ps = WAYS[sips] if blocked_ps is None else blocked_ps
    assert ends(sips, mode, "recv") == Ends(later_ps + WAYS[sips], received_ps, 2)


@pytest.mark.ideal
@pytest.mark.parametrize("sips", WAYS)
def test_a_credit_over_the_fabric_waits_on_the_links_with_data(sips: int) -> None:
    """4096 B, 64 ns, take the same route before: the credit is right behind them on the last link, in every SIP."""
    assert ends(sips, "fabric", "1024", "recv").credited_ps == WAYS[sips] + 64_000
    assert ends(sips, "fast_path", "1024", "recv").credited_ps == WAYS[sips]


@pytest.mark.ideal
@pytest.mark.parametrize("sips", WAYS)
def test_a_credit_is_piggybacked_over_links(sips: int) -> None:
    """No credit is sent alone: it arrives with the message of 64 B, 1 ns, whose write is included."""
    arrived_ps = 10_000 + WAYS[sips] - CREDIT + 1_000 + 1_000
    assert ends(sips, "piggyback", "recv", "pause", "16") == Ends(arrived_ps, 0, 2)
