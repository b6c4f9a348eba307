"""Least delays against Floyd-Warshall and, with reactions, against all chains; and the chains of those delays."""

import random
from collections.abc import Iterator

import pytest

from broker.channels import DelayMatrix, ZeroDelay
from broker.ids import Channel


def random_channels(rng: random.Random, size: int) -> list[Channel]:
    return [
        Channel(rng.randrange(size), rng.randrange(size), rng.choice((1, 2, 2, 3, 7, 20)), f"c{number}")
        for number in range(rng.randrange(3 * size))
    ]


def floyd_warshall(size: int, channels: list[Channel]) -> list[list[int | None]]:
    """Over chains of at least one channel, so the diagonal starts empty."""
    never = 10**9
    least = [[never] * size for _ in range(size)]
    for c in channels:
        least[c.src][c.dst] = min(least[c.src][c.dst], c.delay_ps)
    for via in range(size):
        for src in range(size):
            for dst in range(size):
                least[src][dst] = min(least[src][dst], least[src][via] + least[via][dst])
    return [[None if d >= never else d for d in row] for row in least]


@pytest.mark.parametrize("seed", range(100))
def test_equals_floyd_warshall_and_chains_add_up(seed: int) -> None:
    rng = random.Random(seed)
    size = rng.randint(1, 7)
    channels = random_channels(rng, size)
    delays = DelayMatrix(size, channels)
    assert delays.rows == floyd_warshall(size, channels)
    for src in range(size):
        for dst in range(size):
            assert delays.get(src, dst) == delays.rows[src][dst]
            check_chain(delays, {c.name: c for c in channels}, src, dst)


def simple_chains(channels: list[Channel], src: int, dst: int) -> Iterator[list[Channel]]:
    """All chains that pass no SIP twice, except for the end of a cycle."""
    todo = [[c] for c in channels if c.src == src]
    while todo:
        chain = todo.pop()
        node = chain[-1].dst
        if node == dst:
            yield chain
        if node not in {c.src for c in chain}:
            todo += [[*chain, c] for c in channels if c.src == node]


@pytest.mark.parametrize("seed", range(100))
def test_reactions_against_all_simple_chains(seed: int) -> None:
    """A chain costs its channels' delays and the reactions of its intermediate SIPs."""
    rng = random.Random(seed)
    size = rng.randint(1, 5)
    channels = random_channels(rng, size)[:9]
    reactions = [rng.choice((0, 1, 5, 30)) for _ in range(size)]
    delays = DelayMatrix(size, channels, reactions)
    by_name = {c.name: c for c in channels}

    def cost(chain: list[Channel]) -> int:
        return sum(c.delay_ps for c in chain) + sum(reactions[c.src] for c in chain[1:])

    for dst in range(size):
        least = [min(map(cost, simple_chains(channels, src, dst)), default=None) for src in range(size)]
        assert [delays.get(src, dst) for src in range(size)] == least
        assert delays.into[dst] == sorted(
            ((src, delay) for src, delay in enumerate(least) if delay is not None), key=lambda entry: entry[::-1]
        )
        for src in range(size):
            chain = [by_name[name] for name in delays.chain(src, dst)]
            assert (cost(chain) if chain else None) == least[src]
            assert [c.src for c in chain] + [dst] == ([src] + [c.dst for c in chain] if chain else [dst])


def test_a_chain_of_more_channels_may_be_faster() -> None:
    """Through 1: 3 + 100 + 3; through 2 and 3: 20 + 1 + 20 + 1 + 20. The reactions of the two ends do not count."""
    channels = [Channel(0, 1, 3, "a"), Channel(1, 4, 3, "b")]
    channels += [Channel(0, 2, 20, "c"), Channel(2, 3, 20, "d"), Channel(3, 4, 20, "e")]
    delays = DelayMatrix(5, channels, [1000, 100, 1, 1, 1000])
    assert delays.get(0, 4) == 62
    assert delays.chain(0, 4) == ["c", "d", "e"]
    assert delays.into[4] == [(1, 3), (3, 20), (2, 41), (0, 62)]


def check_chain(delays: DelayMatrix, by_name: dict[str, Channel], src: int, dst: int) -> None:
    chain = [by_name[name] for name in delays.chain(src, dst)]
    if delays.get(src, dst) is None:
        assert chain == []
        return
    assert sum(c.delay_ps for c in chain) == delays.get(src, dst)
    assert [c.src for c in chain] + [dst] == [src] + [c.dst for c in chain]


def test_the_shortest_of_parallel_channels_counts_and_is_named() -> None:
    delays = DelayMatrix(2, [Channel(0, 1, 9, "slow"), Channel(0, 1, 4, "fast"), Channel(0, 1, 4, "fast too")])
    assert delays.get(0, 1) == 4
    assert delays.chain(0, 1) == ["fast"]


def test_a_sip_reaches_itself_by_its_shortest_cycle_only() -> None:
    delays = DelayMatrix(3, [Channel(0, 1, 5, "out"), Channel(1, 0, 6, "back"), Channel(1, 2, 1, "on")])
    assert delays.get(0, 0) == 11
    assert delays.chain(0, 0) == ["out", "back"]
    assert delays.get(2, 2) is None
    assert delays.chain(2, 2) == []


@pytest.mark.parametrize("delay_ps", [0, -1])
def test_a_channel_without_delay_is_refused_by_name(delay_ps: int) -> None:
    with pytest.raises(ZeroDelay, match="sip0 E to sip1 W"):
        DelayMatrix(2, [Channel(1, 0, 5, "fine"), Channel(0, 1, delay_ps, "sip0 E to sip1 W")])


def test_no_channels_is_no_delays() -> None:
    assert DelayMatrix(2, []).rows == [[None, None], [None, None]]
