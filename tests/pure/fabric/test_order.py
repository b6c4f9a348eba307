"""Messages of one route and channel end in the order in which they come to its start, whatever they meet."""

import random
from operator import itemgetter
from typing import Any, NamedTuple

import pytest
from plain_fabric import Watched, travel
from streams import journey, overtaken, streams

from sipsim.core.errors import InvariantViolation
from sipsim.fabric.noc.arbitration import Arbitration
from sipsim.fabric.noc.fabric import Fabric
from sipsim.fabric.noc.transfer import Transfer


class Case(NamedTuple):
    """Arguments of ``journey``, the last two of one stream. ``late_ps``: how much an end may be put off."""

    how: Arbitration
    rows: list[tuple[Any, ...]]
    late_ps: int = 0


CASES = {
    # Five had the last shared edge after the fourth was through there; its own next look was 368 ns later.
    "a stopped one has an edge to itself again": Case(
        Arbitration(256, (50, 50)),
        [
            (0, "6.pe2", "6.hbm0", 4096, 33_000, 32_000),
            (0, "6.pe2", "7.pe2", 4096, 81_000, 32_000, 0, 1),
            (3_589, "6.pe0", "E", 4096, 81_000, 32_000, 14_168, 1),
            (11_337, "7.pe5", "3.pe5", 4096, 81_000, 32_000, 0, 1),
            (44_370, "7.pe7", "3.pe7", 4096, 49_000, 32_000, 0, 1),
            (74_370, "7.pe7", "3.pe7", 4096, 83_000, 32_000, 0, 1),
        ],
    ),
    # The first waits for bytes, so a chunk of the third slips before it. All of the third is here before the fourth.
    "behind one of which a chunk has slipped": Case(
        Arbitration(256, (1, 1, 0)),
        [
            (0, "3.pe5", "W", 16_384, 459_833, 512_000, 18_168),
            (39_935, "3.pe5", "12.pe1", 8192, 35_898, 128_000, 0, 2),
            (43_024, "3.pe2", "12.pe5", 4096, 81_000, 128_000),
            (43_577, "3.pe2", "12.pe5", 16, 80_697, 250),
        ],
        61_000,
    ),
    # The second has used up what waited of it sooner than the looks assume, as its bytes come more slowly.
    "two that are found late": Case(
        Arbitration(256, (1,)),
        [
            (0, "1.pe0", "3.pe0", 8192, 45_570, 64_000),
            (47_365, "1.pe0", "3.pe0", 8192, 254_205, 256_000),
            (78_205, "0.pe6", "3.pe2", 16, 51_000, 125),
            (78_205, "0.pe6", "3.pe2", 64, 51_500, 500),
        ],
        33_000,
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_rare_meetings_keep_the_order(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """They end when their tails are through; a late look may put an end off."""
    how, rows, late_ps = CASES[name]
    journeys = [journey(*row) for row in rows]
    ends_ps: dict[int, int] = {}
    told = Transfer.end_ps

    def noted(self: Transfer) -> int | None:
        end_ps = told(self)
        if end_ps is not None:
            ends_ps[self.seq] = end_ps
        return end_ps

    monkeypatch.setattr(Transfer, "end_ps", noted)
    ends, _, _ = travel(journeys, Watched, how)
    assert not overtaken(journeys, ends)
    assert max(end.tail_ps - ends_ps[index + 1] for index, end in enumerate(ends)) <= late_ps


@pytest.mark.parametrize("name", CASES)
def test_meetings_like_these_keep_the_order(name: str) -> None:
    """Starts and delays a little earlier or later: the witness compares ends."""
    how, rows, _ = CASES[name]
    rng = random.Random(name)
    for _ in range(100):
        varied = [
            (start + rng.randint(0, 3000), src, dst, nbytes, delay + rng.randint(0, 3000), *rest)
            for start, src, dst, nbytes, delay, *rest in rows
        ]
        travel([journey(*row) for row in sorted(varied, key=itemgetter(0))], Watched, how)


@pytest.mark.parametrize("seeds", [range(400, 550), pytest.param(range(5000), marks=pytest.mark.slow)], ids=len)
def test_streams_of_messages_keep_their_order(seeds: range) -> None:
    for seed in seeds:
        journeys, arbitration = streams(seed)
        assert not overtaken(journeys, travel(journeys, Watched, arbitration)[0]), seed


def test_looks_that_are_too_late_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Fabric, "_look_sooner", lambda self, transfer, now: None)
    with pytest.raises(InvariantViolation, match=r"transfer 6 ends at \d+ ps, but transfer 7, which is behind it"):
        test_streams_of_messages_keep_their_order(range(482, 483))
