"""Draws of jitter: within their range, fixed by seed, place and number alone, added and never out of order."""

import pytest

from sipsim.chips.tensix.jitter import Delays, Draws, Jitter
from sipsim.chips.tensix.noc import Core
from sipsim.chips.tensix.params import JitterParams

A, B = Core(1, 1), Core(6, 2)


def draws(seed: int = 1, place: str = "a", most_ps: int = 1000) -> list[int]:
    of_place = Draws(seed, place, most_ps)
    return [of_place.next_ps() for _ in range(2000)]


def jitter(seed: int | None = 7, sip: int = 0, **ranges: float) -> Jitter:
    found = Jitter.of(
        JitterParams(seed=seed, **{"link_ns": 5, "noc_ns": 3, "start_ns": 9, "late_ns": 7, **ranges}), sip
    )
    assert found is not None
    return found


def test_all_of_the_range_is_drawn_evenly() -> None:
    found = draws(most_ps=3)
    assert all(400 < found.count(ps) < 600 for ps in range(4))
    assert set(draws(most_ps=0)) == {0}


def test_seed_and_place_alone_decide() -> None:
    assert draws() == draws()
    assert len({tuple(draws(seed, place)[:9]) for seed in range(9) for place in ("a", "b")}) == 18


def test_what_is_delayed_is_never_sooner_and_keeps_its_order() -> None:
    delays, last_ps = Delays(Draws(3, "a", 5000)), 0
    for time_ps in range(0, 200_000, 40):
        later_ps = delays.later_ps(time_ps)
        assert time_ps <= later_ps <= time_ps + 5000
        assert later_ps >= last_ps
        last_ps = later_ps


def test_a_seed_is_needed() -> None:
    assert Jitter.of(JitterParams(seed=None, link_ns=5, noc_ns=5, start_ns=5, late_ns=5), 0) is None


def test_a_way_has_an_order_of_its_own() -> None:
    """From tile to tile on a NoC: others draw for themselves, whatever passed before."""
    alone, mixed = jitter(), jitter()
    for now_ps in range(0, 40_000, 1000):
        mixed.noc_delay_ps(1, A, B, now_ps)
        mixed.noc_delay_ps(0, B, A, now_ps)
        assert alone.noc_delay_ps(0, A, B, now_ps) == mixed.noc_delay_ps(0, A, B, now_ps)


@pytest.mark.parametrize("changed", ["seed", "sip", "channel", "noc", "processor"])
def test_every_part_of_a_place_counts(changed: str) -> None:
    def drawn(seed: int = 7, sip: int = 0, channel: int = 8, noc: int = 0, processor: int = 0) -> list[int]:
        its = jitter(seed, sip)
        of_link = its.of_link(channel)
        found = [of_link.later_ps(at_ps) - at_ps for at_ps in range(0, 100_000, 10_000)]
        found += [its.noc_delay_ps(noc, A, B, at_ps) for at_ps in range(0, 100_000, 10_000)]
        return found + [its.start_delay_ps(A, processor) for _ in range(9)]

    assert drawn() == drawn()
    assert drawn(**{changed: 1}) != drawn()
