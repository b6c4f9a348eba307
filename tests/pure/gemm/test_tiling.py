"""Tokens cover a product once, take the cycles of the array, and never need more room than there is."""

import random
from collections import Counter

import numpy as np
import pytest

from sipsim.chips.ahbm.gemm.tiling import (
    DATAFLOWS,
    BufferTooSmall,
    Limits,
    Product,
    Rectangle,
    SystolicArray,
    Tiling,
    Tilings,
    tiling,
)


def drawn(seed: int) -> tuple[SystolicArray, Product, Limits]:
    rng = random.Random(seed)
    sizes = (1, 2, 3, 7, 8, 16, 31, 32, 33, 64, 100, 129)
    array = SystolicArray(rng.choice((1, 2, 4, 8, 32)), rng.choice((1, 3, 8, 32)), rng.choice(DATAFLOWS))
    few = 33 if array.rows * array.columns < 32 else 129
    product = Product(*(min(rng.choice(sizes), few) for _ in range(3)))
    itemsize = rng.choice((1, 2, 4))
    room = rng.choice((1, 2, 3, 5, 20, 10**6)) * 2 * (array.rows + array.columns) * 4 * max(array[:2])
    limits = Limits(itemsize, rng.choice((itemsize, 4)), rng.choice((1, 2, 4)), rng.choice((4, 64, 256)), 4, room)
    return array, product, limits


def within(inner: tuple[int, int], place_first: int, place_count: int) -> bool:
    return place_first <= inner[0] and inner[0] + inner[1] <= place_first + place_count


def check(cut: Tiling, array: SystolicArray, product: Product, limits: Limits) -> None:
    covered = np.zeros((product.m, product.n), np.int64)
    for token in cut.tokens:
        (m, rows), (k, depth), (n, columns) = token.m, token.k, token.n
        part = covered[m : m + rows, n : n + columns]
        assert (part == k).all(), "in order of k, each once"
        part += depth
        a, b = cut.loads[token.a].place, cut.loads[token.b].place
        assert within(token.m, a.top, a.rows)
        assert within(token.k, a.left, a.columns)
        assert within(token.k, b.top, b.rows)
        assert within(token.n, b.left, b.columns)
        if token.tile >= 0:
            assert (part == product.k).all()
            assert cut.tiles[token.tile].place == Rectangle(m, n, rows, columns)
    assert (covered == product.k).all()
    assert sum(token.steps + token.fill_cycles for token in cut.tokens) == array.cycles(product)
    check_room(cut, limits)
    written = np.zeros((product.m, product.n), np.int64)
    for place in cut.blocks:
        written[place.top : place.top + place.rows, place.left : place.left + place.columns] += 1
    assert (written == 1).all()
    of_block = Counter(tile.block for tile in cut.tiles)
    assert tuple(of_block[block] for block in range(len(cut.blocks))) == cut.tiles_of_block
    for tile in cut.tiles:
        place = cut.blocks[tile.block]
        assert within((tile.place.top, tile.place.rows), place.top, place.rows)
        assert within((tile.place.left, tile.place.columns), place.left, place.columns)


def check_room(cut: Tiling, limits: Limits) -> None:
    assert cut.room_bytes <= limits.room_bytes
    first = [len(cut.tokens)] * len(cut.loads)
    last = [-1] * len(cut.loads)
    for at, token in enumerate(cut.tokens):
        for number in (token.a, token.b):
            first[number] = min(first[number], at)
            last[number] = at
    assert first == sorted(first), "in the order of their first tokens"
    assert last == [load.last for load in cut.loads]
    held = come = 0
    ends = Counter[int]()
    for at, token in enumerate(cut.tokens):
        while come <= max(token.a, token.b):
            held += cut.loads[come].nbytes
            ends[cut.loads[come].last] += cut.loads[come].nbytes
            come += 1
        assert held <= cut.operand_bytes, "what a token needs fits beside what stays"
        held -= ends[at]
    assert held == 0


@pytest.mark.parametrize("seed", range(200))
def test_every_product_is_covered_once_in_the_cycles_of_the_array(seed):
    array, product, limits = drawn(seed)
    check(tiling(array, product, limits), array, product, limits)


def test_operands_that_fit_are_loaded_once():
    for dataflow in DATAFLOWS:
        cut = tiling(SystolicArray(32, 32, dataflow), Product(256, 512, 200), Limits(2, 2, 4, 256, 4, 2**20))
        assert cut.load_bytes == 2 * (256 * 512 + 512 * 200)


def test_traffic_is_near_what_the_room_allows():
    """1,024^3 in f16 within 1 MiB. Blocks of x by x outputs with all of k in the room would load 2^32 / x bytes, and
    hold x (2 x 1,024) 2 bytes of operands, so x is 256 at most: 16 MiB. Panels may keep one operand alone: 10 MiB."""
    for dataflow, most in (("os", 12), ("ws", 16), ("is", 16)):
        cut = tiling(SystolicArray(32, 32, dataflow), Product(1024, 1024, 1024), Limits(2, 2, 4, 256, 4, 2**20))
        assert 4 * 2**20 <= cut.load_bytes <= most * 2**20, (dataflow, cut.load_bytes / 2**20)


def test_narrow_rooms_do_not_load_a_piece_for_each_fold():
    """Within 256 KiB the stream of 1,024 rows of four folds down the array does not stay, that of one does: 18 MiB."""
    cut = tiling(SystolicArray(32, 32, "ws"), Product(1024, 1024, 1024), Limits(2, 2, 4, 256, 4, 2**18))
    assert cut.load_bytes <= 18 * 2**20


def test_rows_of_pieces_are_wide():
    """Each piece has rows of 256 bytes, the narrowest that PE_DMA moves well."""
    for dataflow in DATAFLOWS:
        cut = tiling(SystolicArray(32, 32, dataflow), Product(512, 512, 512), Limits(2, 2, 4, 256, 4, 2**21))
        assert {load.place.columns * 2 for load in cut.loads} == {256}


TURNS = [
    ((256, 2048, 256), 2, (2, 4)),
    ((64, 2048, 64), 2, (2, 2)),
    ((96, 2048, 64), 2, (3, 2)),
    ((512, 2048, 64), 2, (4, 2)),
    ((512, 2048, 32), 2, (8, 1)),
    ((32, 2048, 256), 2, (1, 8)),
    ((256, 2048, 256), 1, (1, 8)),
]


@pytest.mark.parametrize(("shape", "itemsize", "turns"), TURNS)
def test_turns_are_of_a_block_and_fetch_each_operand_once(shape, itemsize, turns):
    """Down and across, with eight accumulators; rows of B have 256 bytes, or those of the matrix."""
    array, product = SystolicArray(32, 32, "os"), Product(*shape)
    assert array.turns(product, 8, 256 // itemsize) == turns
    cut = tiling(array, product, Limits(itemsize, itemsize, 8, 256, 4, 2**22))
    rounds = Counter((token.k, token.m[0] // (32 * turns[0]), token.n[0] // (32 * turns[1])) for token in cut.tokens)
    fetched = Counter[object]()
    for token in cut.tokens:
        at = token.k, token.m[0] // (32 * turns[0]), token.n[0] // (32 * turns[1])
        fetched[at] += token.fetch_bytes
        assert token.ahead <= rounds[at]
    for (k, down, across), nbytes in fetched.items():
        high = min(32 * turns[0], product.m - 32 * turns[0] * down)
        wide = min(32 * turns[1], product.n - 32 * turns[1] * across)
        assert nbytes == (high + wide) * k[1] * itemsize
    assert cut.tokens[-1].ahead == min(rounds.values())


def test_too_little_room_is_told():
    with pytest.raises(BufferTooSmall, match=r"two tokens need \d+ bytes, the buffer has 2000$"):
        tiling(SystolicArray(32, 32, "ws"), Product(64, 64, 64), Limits(4, 4, 4, 256, 4, 2000))


# --- what is kept ---------------------------------------------------------------------------------------------


def test_tilings_are_kept_as_long_as_they_have_few_tokens():
    """256 tokens each of these: two are kept, and the one used last whatever it has."""
    array, limits, kept = SystolicArray(32, 32, "os"), Limits(2, 2, 4, 256, 4, 2**20), Tilings(600)
    small = [Product(256, 512 + extra, 256) for extra in (-2, -1, 0)]
    first = kept.get(array, small[0], limits)
    assert len(first.tokens) == 256
    assert first == tiling(array, small[0], limits)
    second = kept.get(array, small[1], limits)
    assert kept.get(array, small[0], limits) is first
    kept.get(array, small[2], limits)
    assert kept.tokens == 512
    assert kept.get(array, small[0], limits) is first, "it was used after the second one"
    assert kept.get(array, small[1], limits) is not second
    large = kept.get(array, Product(256, 2048, 256), limits)
    assert kept.get(array, Product(256, 2048, 256), limits) is large
    assert kept.tokens == len(large.tokens) == 1024


def test_a_tiling_that_cannot_be_made_is_not_kept():
    kept = Tilings()
    with pytest.raises(BufferTooSmall):
        kept.get(SystolicArray(32, 32, "ws"), Product(64, 64, 64), Limits(4, 4, 4, 256, 4, 2000))
    assert kept.tokens == 0
