"""Tiling of a matrix product for a systolic array: folds, tokens, and the pieces of operands that tokens need.

A *fold* is the part of the product that is stationary in the array of multiply-accumulate cells at a time, one element
per cell: outputs (``os``), elements of B (``ws``) or of A (``is``). The other operands stream through the array, one
step per cycle. A *token* is a run of consecutive steps of a fold's stream. A *piece* is a block of an operand that one
transfer loads.

The tiling depends only on shapes: the same product on another PE has the same tokens.
"""

from collections import OrderedDict, defaultdict
from collections.abc import Iterator
from heapq import heappop, heappush
from itertools import product as pairs
from typing import NamedTuple

DATAFLOWS = ("os", "ws", "is")


class Product(NamedTuple):
    """Shape of the product of an (M, K) and a (K, N) matrix."""

    m: int
    k: int
    n: int

    @property
    def macs(self) -> int:
        """Number of multiply-accumulates."""
        return self.m * self.k * self.n


class SystolicArray(NamedTuple):
    """Systolic array of ``rows`` x ``columns`` cells. ``dataflow``: the stationary data, one of :data:`DATAFLOWS`.

    A fold takes one cycle per step, plus fill and drain: operands enter and results leave skewed by one cycle per row
    and column. With ``ws`` and ``is`` the stationary operand is first moved in, one row per cycle. Folds run one after
    the other.

    Source: the stall-free cycles of SCALE-Sim 3.0 (Samajdar et al., ISPASS 2020), which prints the index of the last
    cycle. Limits: no fold begins while the previous one drains; all types have the same rate.
    """

    rows: int
    columns: int
    dataflow: str

    def spread(self, product: Product) -> tuple[int, int, int]:
        """Return the number of elements along the array's rows and along its columns, and the steps of the stream."""
        m, k, n = product
        return {"os": (m, n, k), "ws": (k, n, m), "is": (k, m, n)}[self.dataflow]

    def folds(self, product: Product) -> int:
        """Return the number of folds of a product."""
        down, across, _ = self.spread(product)
        return -(-down // self.rows) * -(-across // self.columns)

    def turns(self, product: Product, most: int, wide: int) -> tuple[int, int]:
        """Return how many folds are interleaved, as (down, across): at most ``most`` in all; with ``os`` the folds span
        at least ``wide`` elements across the product.

        With ``os`` the folds form the largest block, and of equally large blocks the block with the fewest rows and
        columns, which needs the fewest operands per cycle. With the other dataflows the folds form a row.
        """
        if self.dataflow != "os":
            return 1, most
        most_down, most_across = -(-product.m // self.rows), -(-product.n // self.columns)
        least = min(-(-wide // self.columns), most_across, most)
        blocks = [(down, min(most // down, most_across)) for down in range(1, min(most // least, most_down) + 1)]
        return min(blocks, key=lambda each: (-each[0] * each[1], each[0] * self.rows + each[1] * self.columns))

    @property
    def fill_cycles(self) -> int:
        """Cycles of a fold in addition to those of its stream."""
        load_cycles = 0 if self.dataflow == "os" else self.rows
        return load_cycles + self.rows + self.columns - 2

    def cycles(self, product: Product) -> int:
        """Return the cycles of a whole product whose operands are always ready."""
        _, _, steps = self.spread(product)
        return self.folds(product) * (steps + self.fill_cycles) - 1


A, B = 0, 1
"""Numbers of the operands."""
_Key = tuple[int, int, int]
"""Key of a piece: operand, and row and column in its grid of pieces."""


class BufferTooSmall(Exception):
    """Error for a buffer that is too small for two tokens of a product."""


class Rectangle(NamedTuple):
    """Rectangle of a matrix: first row and column, number of rows and columns, in elements."""

    top: int
    left: int
    rows: int
    columns: int

    @property
    def cells(self) -> int:
        """Number of elements."""
        return self.rows * self.columns


class Load(NamedTuple):
    """Load of a piece of operand 0 (A) or 1 (B); ``last``: index of the last token that needs the piece."""

    operand: int
    place: Rectangle
    nbytes: int
    last: int


class Token(NamedTuple):
    """Token: ``steps`` consecutive steps of a fold's stream, then ``fill_cycles`` more for the last token of a fold.

    A token multiplies rows ``m`` and columns ``n`` of the product over ``k``: (first, count) each. ``a``, ``b``:
    numbers of the loads that the token needs. ``fetch_bytes``: bytes that the token reads of these loads. A token is
    fetched at most ``ahead`` tokens before the array works on it. ``tile``: index of the completed output, or -1.
    """

    m: tuple[int, int]
    k: tuple[int, int]
    n: tuple[int, int]
    steps: int
    fill_cycles: int
    a: int
    b: int
    fetch_bytes: int
    ahead: int
    tile: int


class Tile(NamedTuple):
    """Rectangle ``place`` of outputs that a token completes, inside output block number ``block``."""

    place: Rectangle
    block: int


class Tiling(NamedTuple):
    """Product as ``tokens`` in order. ``loads`` are in the order of their first tokens, ``tiles`` in the order of their
    completion. ``blocks``: rectangles of outputs that one transfer writes; ``tiles_of_block``: tiles per block.

    The tokens of a fold follow each other without a gap, so the tokens together take the cycles of the whole product,
    however long their streams are. Up to ``accumulators`` folds are interleaved: with ``os`` a block of folds after
    each token, so that a load of A serves a row of the block and a load of B the whole block; with other dataflows a
    row of folds after each fold. With ``os`` a token's operands are fetched once for all interleaved folds. Limit: the
    buffers of the array that hold these operands take no TCM space.

    The pieces of an operand are blocks of a regular grid whose rows have at least ``row_bytes``, if the matrix is wide
    enough. A piece is loaded before its first token and dropped after its last token. A piece that is evicted earlier
    is loaded again; the piece whose next token is the furthest is evicted, for the fewest loads (Belady, 1966).
    Part of the buffer is reserved for loads ahead.

    With ``os`` the folds are ordered by panels, each of as many rows (or columns) of folds as fit the buffer, whichever
    needs fewer loads. With ``ws`` and ``is`` the partial sums of a stream are outside the array. Limit: these
    sums take no TCM space and no bandwidth.

    ``operand_bytes``: buffer space for loads. ``output_blocks``: number of buffers of ``output_bytes`` for outputs.
    """

    tokens: tuple[Token, ...]
    loads: tuple[Load, ...]
    tiles: tuple[Tile, ...]
    blocks: tuple[Rectangle, ...]
    tiles_of_block: tuple[int, ...]
    operand_bytes: int
    output_blocks: int
    output_bytes: int

    @property
    def load_bytes(self) -> int:
        """Bytes of all loads."""
        return sum(each.nbytes for each in self.loads)

    @property
    def room_bytes(self) -> int:
        """Bytes of TCM space for operands and outputs."""
        return self.operand_bytes + self.output_blocks * self.output_bytes


class Limits(NamedTuple):
    """Limits of a tiling. ``itemsize``, ``output_itemsize``: bytes per element. ``accumulators``: interleaved folds.

    ``row_bytes``: least bytes of a piece's row. ``room_bytes``: TCM space. ``output_blocks``: maximum in this space.
    """

    itemsize: int
    output_itemsize: int
    accumulators: int
    row_bytes: int
    output_blocks: int
    room_bytes: int


class _Sizes(NamedTuple):
    """Sizes of a tiling: (rows, columns) of a piece of A, of a piece of B and of an output block. ``folds``: number of
    interleaved folds, with ``os`` in ``down`` rows. ``steps``: steps of a token.
    """

    a: tuple[int, int]
    b: tuple[int, int]
    output: tuple[int, int]
    folds: int
    steps: int
    output_blocks: int
    down: int = 1

    def piece_bytes(self, itemsize: int) -> int:
        """Return the bytes of a piece of A and a piece of B together."""
        return (self.a[0] * self.a[1] + self.b[0] * self.b[1]) * itemsize

    def output_bytes(self, itemsize: int) -> int:
        """Return the bytes of an output block."""
        return self.output[0] * self.output[1] * itemsize


class _Draft(NamedTuple):
    """Token before its loads are known. ``a``, ``b``, ``block``: grid places of its pieces and output."""

    m: tuple[int, int]
    k: tuple[int, int]
    n: tuple[int, int]
    steps: int
    is_last_of_fold: bool
    a: tuple[int, int]
    b: tuple[int, int]
    fetched: int
    block: tuple[int, int] | None
    ahead: int = 1


def tiling(array: SystolicArray, product: Product, limits: Limits) -> Tiling:
    """Return the tiling of a product.

    Raises:
        BufferTooSmall: if the buffer is too small for two tokens.
    """
    cut = _cut(array, product, limits)
    operand_bytes = limits.room_bytes - cut.output_blocks * cut.output_bytes(limits.output_itemsize)
    pieces = cut.piece_bytes(limits.itemsize)
    kept_bytes = max(operand_bytes - max(operand_bytes // 4, pieces), pieces)
    streams = {"os": _outputs_stay, "ws": _weights_stay, "is": _inputs_stay}
    parts = list(streams[array.dataflow](array, product, cut, kept_bytes // limits.itemsize))
    loads, of_part = _loads(parts, product, cut, limits.itemsize, kept_bytes)
    blocks: dict[tuple[int, int], int] = {}
    tiles: list[Tile] = []
    tokens = []
    for index, part in enumerate(parts):
        fill = array.fill_cycles if part.is_last_of_fold else 0
        if index == len(parts) - 1:
            fill -= 1
        tile = -1
        if part.block is not None:
            tile = len(tiles)
            block = blocks.setdefault(part.block, len(blocks))
            tiles.append(Tile(Rectangle(part.m[0], part.n[0], part.m[1], part.n[1]), block))
        fetch_bytes = part.fetched * limits.itemsize
        tokens.append(Token(part.m, part.k, part.n, part.steps, fill, *of_part[index], fetch_bytes, part.ahead, tile))
    counts = [0] * len(blocks)
    for each in tiles:
        counts[each.block] += 1
    places = tuple(_place(key, cut.output, (product.m, product.n)) for key in blocks)
    largest = max(each.cells for each in places) * limits.output_itemsize
    whole_bytes = min(operand_bytes, sum(each.nbytes for each in loads))
    output_blocks = min(cut.output_blocks, len(places))
    return Tiling(tuple(tokens), tuple(loads), tuple(tiles), places, tuple(counts), whole_bytes, output_blocks, largest)


def _cut(array: SystolicArray, product: Product, limits: Limits) -> _Sizes:
    """Return the largest sizes with which the pieces of two tokens fit the buffer."""
    folds, steps = limits.accumulators, max(limits.row_bytes // limits.itemsize, 1)
    output_blocks = limits.output_blocks
    # With `ws` the next fold uses a wide piece of A again only after the whole stream, so the stream must fit.
    is_wide = array.dataflow != "ws" or 2 * product.m * max(limits.row_bytes, array.rows) <= limits.room_bytes
    while True:
        block = array.turns(product, folds, -(-limits.row_bytes // limits.itemsize))
        cut = _clipped(_pieces(array, block, steps, output_blocks, is_wide), product)
        pieces, output = cut.piece_bytes(limits.itemsize), cut.output_bytes(limits.output_itemsize)
        if 2 * pieces + output_blocks * output <= limits.room_bytes:
            return cut
        if folds > 1:
            folds //= 2
        elif is_wide:
            is_wide = False
        elif steps > 1:
            steps //= 2
        elif output_blocks > 1:
            output_blocks = 1
        else:
            raise BufferTooSmall(f"two tokens need {2 * pieces + output} bytes, the buffer has {limits.room_bytes}")


def _pieces(array: SystolicArray, turns: tuple[int, int], steps: int, output_blocks: int, is_wide: bool) -> _Sizes:
    """Return the sizes for interleaved folds ``turns`` (down, across). ``is_wide``: with ``ws`` and ``is`` a piece of A
    serves several folds down the array.
    """
    rows, columns, dataflow = array
    down, folds = turns
    wide, across = -(-steps // rows) * rows if is_wide else rows, folds * columns
    if dataflow == "os":
        return _Sizes((rows, steps), (steps, across), (rows, across), folds, steps, output_blocks, down)
    if dataflow == "ws":
        return _Sizes((steps, wide), (rows, across), (steps, columns), folds, steps, output_blocks)
    return _Sizes((across, wide), (rows, steps), (columns, steps), folds, steps, output_blocks)


def _clipped(cut: _Sizes, product: Product) -> _Sizes:
    """Return the sizes limited to the matrices' sizes, to compute the pieces' space; the piece count is unchanged."""
    m, k, n = product
    return cut._replace(
        a=(min(cut.a[0], m), min(cut.a[1], k)),
        b=(min(cut.b[0], k), min(cut.b[1], n)),
        output=(min(cut.output[0], m), min(cut.output[1], n)),
    )


def _outputs_stay(array: SystolicArray, product: Product, cut: _Sizes, kept: int) -> Iterator[_Draft]:
    rows, columns, _ = array
    wide, high, before = cut.folds * columns, cut.down * rows, 1
    for i, j in _panels(-(-product.m // high), -(-product.n // wide), product.k * high, product.k * wide, kept):
        down = [_span(top, rows, product.m) for top in range(i * high, min((i + 1) * high, product.m), rows)]
        across = [_span(left, columns, product.n) for left in range(j * wide, min((j + 1) * wide, product.n), columns)]
        for t, first in enumerate(range(0, product.k, cut.steps)):
            k = _span(first, cut.steps, product.k)
            is_last = first + cut.steps >= product.k
            # Rows of A and columns of B stay in the array's buffers for all interleaved folds. Each buffer is double,
            # so that the operands of the next tokens arrive meanwhile.
            turns = len(down) * len(across)
            ahead, before = min(turns, before), turns
            # The last tokens are ordered by rows, so that a block of outputs is complete before the next begins.
            for m, n in pairs(down, across) if is_last else [(m, n) for n in across for m in down]:
                fetched = k[1] * ((m[1] if n is across[0] else 0) + (n[1] if m is down[0] else 0))
                row = m[0] // rows
                yield _Draft(m, k, n, k[1], is_last, (row, t), (t, j), fetched, (row, j) if is_last else None, ahead)


def _panels(down: int, across: int, a: int, b: int, kept: int) -> Iterator[tuple[int, int]]:
    """Yield (row, column) of folds in the order with the fewest loads. ``a``, ``b``: elements per row, per column."""
    high, wide = max(min((kept - b) // a, down), 1), max(min((kept - a) // b, across), 1)
    by_rows = down * a + across * b * -(-down // high)
    by_columns = across * b + down * a * -(-across // wide)
    if by_rows <= by_columns:
        yield from ((i, j) for rows in _even(down, high) for j in range(across) for i in rows)
    else:
        yield from ((i, j) for columns in _even(across, wide) for i in range(down) for j in columns)


def _even(count: int, limit: int) -> list[range]:
    """Split ``range(count)`` into ranges whose lengths are at most ``limit`` and differ by at most 1."""
    parts = -(-count // limit)
    return [range(count * i // parts, count * (i + 1) // parts) for i in range(parts)]


def _weights_stay(array: SystolicArray, product: Product, cut: _Sizes, _kept: int) -> Iterator[_Draft]:
    for n, s, k, t, m, is_last in _stationary(array, cut.folds, cut.steps, product.n, product.k, product.m):
        stationary = 0 if t else k[1] * n[1]
        block = (t, n[0] // array.columns) if k[0] + k[1] == product.k else None
        a, b = (t, k[0] // cut.a[1]), (s, n[0] // (cut.folds * array.columns))
        yield _Draft(m, k, n, m[1], is_last, a, b, m[1] * k[1] + stationary, block)


def _inputs_stay(array: SystolicArray, product: Product, cut: _Sizes, _kept: int) -> Iterator[_Draft]:
    for m, s, k, t, n, is_last in _stationary(array, cut.folds, cut.steps, product.m, product.k, product.n):
        stationary = 0 if t else k[1] * m[1]
        block = (m[0] // array.columns, t) if k[0] + k[1] == product.k else None
        a, b = (m[0] // (cut.folds * array.columns), k[0] // cut.a[1]), (s, t)
        yield _Draft(m, k, n, n[1], is_last, a, b, n[1] * k[1] + stationary, block)


def _stationary(
    array: SystolicArray, folds: int, steps: int, across: int, down: int, stream: int
) -> Iterator[tuple[tuple[int, int], int, tuple[int, int], int, tuple[int, int], bool]]:
    """Yield per token: elements across the array, index and elements down the array, index and elements of the stream,
    and whether it is the last token of its fold.
    """
    rows, columns, _ = array
    for group in range(0, across, folds * columns):
        for s, first in enumerate(range(0, down, rows)):
            for left in range(group, min(group + folds * columns, across), columns):
                for t, begin in enumerate(range(0, stream, steps)):
                    part, is_last = _span(begin, steps, stream), begin + steps >= stream
                    yield _span(left, columns, across), s, _span(first, rows, down), t, part, is_last


def _span(first: int, limit: int, end: int) -> tuple[int, int]:
    return first, min(limit, end - first)


def _place(index: tuple[int, int], piece: tuple[int, int], matrix: tuple[int, int]) -> Rectangle:
    """Return the rectangle of a piece of a grid, clipped to the matrix."""
    top, left = index[0] * piece[0], index[1] * piece[1]
    return Rectangle(top, left, min(piece[0], matrix[0] - top), min(piece[1], matrix[1] - left))


class _Buffer:
    """Buffer of ``capacity_bytes`` whose pieces change as tokens are processed. ``loads``: operand, place and bytes of
    each load so far; ``last``: index of each load's last token so far.
    """

    def __init__(self, capacity_bytes: int) -> None:
        self._capacity_bytes = capacity_bytes
        self._used_bytes = 0
        self._number: dict[_Key, int] = {}
        self._following: dict[_Key, int] = {}
        self._furthest: list[tuple[int, _Key]] = []
        self.loads: list[tuple[int, Rectangle, int]] = []
        self.last: list[int] = []

    def has(self, key: _Key) -> bool:
        """Return whether a piece is in the buffer."""
        return key in self._number

    def load(self, key: _Key, place: Rectangle, nbytes: int, needed: _Key) -> None:
        """Load a piece; evict other pieces if necessary, but not ``needed``, which the same token needs."""
        while self._used_bytes + nbytes > self._capacity_bytes:
            self._drop_furthest(needed)
        self._used_bytes += nbytes
        self._number[key] = len(self.loads)
        self.loads.append((key[0], place, nbytes))
        self.last.append(0)

    def use(self, key: _Key, token: int, following: int) -> int:
        """Use a piece for a token, and return the number of its load. ``following``: the next token that needs it."""
        number = self._number[key]
        self.last[number] = token
        self._following[key] = following
        heappush(self._furthest, (-following, key))
        return number

    def _drop_furthest(self, needed: _Key) -> None:
        """Evict the piece whose next use is the furthest, except ``needed``."""
        skipped = None
        while True:
            entry = heappop(self._furthest)
            key = entry[1]
            if key not in self._number or self._following[key] != -entry[0]:
                continue  # outdated: the piece was evicted, or used since
            if key != needed:
                break
            skipped = entry
        if skipped is not None:
            heappush(self._furthest, skipped)
        self._used_bytes -= self.loads[self._number.pop(key)][2]


def _loads(
    parts: list[_Draft], product: Product, cut: _Sizes, itemsize: int, kept_bytes: int
) -> tuple[list[Load], list[tuple[int, int]]]:
    """Return the loads, and per token the numbers of its two loads."""
    keys: list[tuple[_Key, _Key]] = [((A, *part.a), (B, *part.b)) for part in parts]
    next_of: dict[_Key, int] = defaultdict(lambda: len(parts))
    following: list[tuple[int, int]] = []
    for index in range(len(parts) - 1, -1, -1):
        a, b = keys[index]
        following.append((next_of[a], next_of[b]))
        next_of[a] = next_of[b] = index
    following.reverse()
    pieces, matrices = (cut.a, cut.b), ((product.m, product.k), (product.k, product.n))
    buffer, of_part = _Buffer(kept_bytes), list[tuple[int, int]]()
    for index, (a, b) in enumerate(keys):
        for key, needed in ((a, b), (b, a)):
            if not buffer.has(key):
                place = _place(key[1:], pieces[key[0]], matrices[key[0]])
                buffer.load(key, place, place.cells * itemsize, needed)
        next_a, next_b = following[index]
        of_part.append((buffer.use(a, index, next_a), buffer.use(b, index, next_b)))
    return [Load(*load, last) for load, last in zip(buffer.loads, buffer.last, strict=True)], of_part


MOST_TOKENS = 2**17


class Tilings:
    """LRU cache of tilings by shape: PEs with equal parts of a product share one tiling.

    The cache holds at most ``most_tokens`` tokens in all, of some 250 bytes each, but always the last used tiling.
    """

    def __init__(self, most_tokens: int = MOST_TOKENS) -> None:
        self._token_limit = most_tokens
        self._tilings: OrderedDict[tuple[SystolicArray, Product, Limits], Tiling] = OrderedDict()
        self.tokens = 0

    def get(self, array: SystolicArray, product: Product, limits: Limits) -> Tiling:
        """Return the result of :func:`tiling`, cached.

        Raises:
            BufferTooSmall: if the buffer is too small for two tokens.
        """
        key = array, product, limits
        cached = self._tilings.get(key)
        if cached is None:
            cached = self._tilings[key] = tiling(array, product, limits)
            self.tokens += len(cached.tokens)
            while self.tokens > self._token_limit and len(self._tilings) > 1:
                self.tokens -= len(self._tilings.popitem(last=False)[1].tokens)
        else:
            self._tilings.move_to_end(key)
        return cached
