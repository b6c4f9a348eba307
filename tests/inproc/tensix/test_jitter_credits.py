"""Jitter of the credits of routers, over a link and from router to router of a chip: later, and in their order."""

from collections import defaultdict

import pytest
from fabric_runs import passed, run_flows
from runs import Run

from sipsim.chips.tensix.jitter import Jitter
from sipsim.chips.tensix.noc import Core
from sipsim.chips.tensix.results import ETH_SEND

ROUNDS = [{"at": at, "way": "E", "start": 2, "packets": 60, "nbytes": 640} for at in range(3)]
"""Each over a chip between, more packets than the channels have slots."""
CREDITS = 1
"""The queue on which routers send them."""


def ring(*more: object, revision: str = "2025-11") -> Run:
    return passed(run_flows(3, ROUNDS, *more, fabric={"topology": "ring", "revision": revision}, keep_oplog=True))


def credits_ps(done: Run) -> dict[tuple[int, Core], list[tuple[int, int]]]:
    """When credits have left and arrive, by chip and Ethernet core, in the order in which they were told."""
    found = defaultdict(list)
    for rank, member in enumerate(done.members):
        for kind, _, _, x, y, *fields in member.chip.oplog.records:
            if kind == ETH_SEND and fields[0] == CREDITS:
                found[rank, Core(x, y)].append((fields[-2], fields[-1]))
    return found


def test_credits_over_a_link_come_later_and_in_order() -> None:
    delays = [arrival_ps - left_ps for told in credits_ps(ring()).values() for left_ps, arrival_ps in told]
    least_ps = min(delays)
    moved = credits_ps(ring("--jitter", 3, "--set", "system.chip_params.jitter.link_ns=900"))
    for told in moved.values():
        arrivals = [arrival_ps for _, arrival_ps in told]
        assert arrivals == sorted(arrivals)
        assert all(arrival_ps - left_ps >= least_ps for left_ps, arrival_ps in told)
        assert len({arrival_ps - left_ps for left_ps, arrival_ps in told}) > len(told) // 4


def test_credits_on_a_chip_are_drawn_for_and_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """Packets go east, so that nothing but credits goes from the router in the east to that in the west."""
    starts: dict[tuple[int, Core, Core], list[int]] = defaultdict(list)
    drawn = Jitter.noc_delay_ps

    def noted(jitter: Jitter, noc: int, src: Core, dst: Core, now_ps: int, delay_ps: int = 0) -> int:
        found = drawn(jitter, noc, src, dst, now_ps, delay_ps)
        assert found >= delay_ps
        starts[jitter._sip, src, dst].append(now_ps + found)
        return found

    monkeypatch.setattr(Jitter, "noc_delay_ps", noted)
    done = ring("--jitter", 3)
    for rank, member in enumerate(done.members):
        east, west = (member.chip.fabrics[0].cores[place] for place in (0, 1))
        told = starts[rank, east, west]
        assert len(told) >= ROUNDS[rank]["packets"] // 2, "some credits tell of several slots"
        assert told == sorted(told)


@pytest.mark.parametrize("revision", ["2025-03", "2025-11"])
@pytest.mark.parametrize("seed", range(1, 5))
def test_no_credit_is_lost_or_told_twice(revision: str, seed: int) -> None:
    """Routers check each count against what they have sent; nothing is missing at the end."""
    ranges = [f"system.chip_params.jitter.{name}=2000" for name in ("link_ns", "noc_ns")]
    ring("--jitter", seed, *(word for each in ranges for word in ("--set", each)), revision=revision)
