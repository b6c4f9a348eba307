"""The tiling of a matrix product for a systolic array: folds, tokens, and the pieces of operands that tokens need.

A *fold* is what the array of multiply-accumulate cells holds at a time: outputs (``os``), elements of B (``ws``) or of
A (``is``), as many as it has cells. The rest of the product streams through it, a step a cycle. A *token* is a part of
a fold: some steps of its stream. A *piece* is a block of an operand that is loaded at once.

All here is data of shapes alone: the same product on another PE has the same tokens.
"""

from collections import OrderedDict, defaultdict
from collections.abc import Iterator
from heapq import heappop, heappush
from itertools import product as pairs
from typing import NamedTuple

DATAFLOWS = ("os", "ws", "is")


class Product(NamedTuple):
    """The product of an (M, K) matrix and a (K, N) one."""

    m: int
    k: int
    n: int

    @property
    def macs(self) -> int:
        """Multiplications, each with an addition."""
        return self.m * self.k * self.n


class SystolicArray(NamedTuple):
    """``rows`` x ``columns`` cells; ``dataflow``: what stands still, one of :data:`DATAFLOWS`.

    A fold takes a cycle for each step, and then those in which the array is not full: operands come in, and results
    leave, skewed by a cycle a row and column; what stands still in ``ws`` and ``is`` is moved in first, a row a cycle.
    Folds follow one after the other.

    Source: the stall-free cycles of SCALE-Sim 3.0 (Samajdar et al., ISPASS 2020), which prints the index of the last
    cycle. Limits: no fold begins while the one before it drains; all types have one rate.
    """

    rows: int
    columns: int
    dataflow: str

    def spread(self, product: Product) -> tuple[int, int, int]:
        """Elements over the rows of the array, over its columns, and steps of the stream."""
        m, k, n = product
        return {"os": (m, n, k), "ws": (k, n, m), "is": (k, m, n)}[self.dataflow]

    def folds(self, product: Product) -> int:
        """How many folds a product has."""
        down, across, _ = self.spread(product)
        return -(-down // self.rows) * -(-across // self.columns)

    def turns(self, product: Product, most: int, wide: int) -> tuple[int, int]:
        """Folds that take turns, down and across the product, ``most`` of them; with ``os`` in rows of ``wide``
        elements or more.

        With ``os`` a block of them: as many as there are, then that of the fewest rows and columns, since it needs
        the fewest operands in a cycle. With the others one behind the other.
        """
        if self.dataflow != "os":
            return 1, most
        most_down, most_across = -(-product.m // self.rows), -(-product.n // self.columns)
        least = min(-(-wide // self.columns), most_across, most)
        blocks = [(down, min(most // down, most_across)) for down in range(1, min(most // least, most_down) + 1)]
        return min(blocks, key=lambda each: (-each[0] * each[1], each[0] * self.rows + each[1] * self.columns))

    @property
    def fill_cycles(self) -> int:
        """Cycles of a fold beside those of its stream."""
        moved_in = 0 if self.dataflow == "os" else self.rows
        return moved_in + self.rows + self.columns - 2

    def cycles(self, product: Product) -> int:
        """Of a whole product whose operands are always there."""
        _, _, steps = self.spread(product)
        return self.folds(product) * (steps + self.fill_cycles) - 1


A, B = 0, 1
"""Operands."""
_Key = tuple[int, int, int]
"""Operand, and row and column in its grid of pieces."""


class BufferTooSmall(Exception):
    """The room holds no two tokens of a product."""


class Rectangle(NamedTuple):
    """Rows and columns of a matrix, in elements."""

    top: int
    left: int
    rows: int
    columns: int

    @property
    def cells(self) -> int:
        """Elements."""
        return self.rows * self.columns


class Load(NamedTuple):
    """A piece of an operand, which tokens need until ``last``."""

    operand: int
    place: Rectangle
    nbytes: int
    last: int


class Token(NamedTuple):
    """``steps`` of the stream of a fold; ``fill_cycles`` more if it is the fold's last one.

    It multiplies rows ``m`` and columns ``n`` of the product, over ``k``: (first, count) each. ``a`` and ``b``: the
    numbers of the loads it needs. ``fetch_bytes``: what it reads of them, while it is at most ``ahead`` tokens before
    the one that the array works on. ``tile``: the output that is complete then, -1 for none.
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
    """An output that is complete at once, in output block ``block``."""

    place: Rectangle
    block: int


class Tiling(NamedTuple):
    """A product as ``tokens``, in their order. ``loads``: in the order of their first tokens. ``tiles``: in the order
    in which they are complete. ``blocks``: outputs that are written by one transfer, ``tiles_of_block`` each.

    The tokens of one fold follow each other without a gap, so that all tokens together take the cycles of the whole
    product, however long their streams are. Folds take turns (``accumulators`` of them): with ``os`` a block of them
    after each token, so that a load of A serves a row of it and one of B all; with the others those side by side after
    each fold. With ``os`` the operands of a token are fetched once for all turns. Limit: the buffers of the array that
    they stay in take no room.

    The pieces of an operand are blocks of a regular grid whose rows are of at least ``row_bytes`` where the matrix has
    them. A piece is loaded before its first token and dropped after its last; one that has to go before that is loaded
    again. Which one goes is the choice with the fewest loads (Belady, 1966): the one whose next token is the furthest.
    A part of the room is left for loads ahead.

    With ``os`` the order of the folds is by panels: as many rows of folds as stay in the room, or columns, whichever
    loads less. With ``ws`` and ``is`` partial sums of a whole stream lie beside the array. Limit: they take no room and
    no bandwidth.

    ``operand_bytes``: the room for loads. ``output_blocks``: for how many of ``output_bytes`` each there is room.
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
        """Of all loads."""
        return sum(each.nbytes for each in self.loads)

    @property
    def room_bytes(self) -> int:
        """Room in the TCM for all that it holds."""
        return self.operand_bytes + self.output_blocks * self.output_bytes


class Limits(NamedTuple):
    """``itemsize`` and ``output_itemsize``: bytes of an element. ``accumulators``: folds that take turns.

    ``row_bytes``: least bytes of a row of a piece. ``room_bytes``: of the TCM. ``output_blocks``: the most in it.
    """

    itemsize: int
    output_itemsize: int
    accumulators: int
    row_bytes: int
    output_blocks: int
    room_bytes: int


class _Cut(NamedTuple):
    """Rows and columns of a piece of A and of B, and of an output; ``folds`` across the columns of the product that
    take turns, with ``os`` in ``down`` rows of folds; ``steps`` of a token."""

    a: tuple[int, int]
    b: tuple[int, int]
    output: tuple[int, int]
    folds: int
    steps: int
    output_blocks: int
    down: int = 1

    def piece_bytes(self, itemsize: int) -> int:
        """Of a piece of A and one of B."""
        return (self.a[0] * self.a[1] + self.b[0] * self.b[1]) * itemsize

    def output_bytes(self, itemsize: int) -> int:
        """Of an output block."""
        return self.output[0] * self.output[1] * itemsize


class _Part(NamedTuple):
    """A token before the loads are known. ``a`` and ``b``: places in the grids. ``block``: of its output."""

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
    """The tokens of a product.

    Raises:
        BufferTooSmall: when the room holds no two tokens.
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
    for at, part in enumerate(parts):
        fill = array.fill_cycles if part.is_last_of_fold else 0
        if at == len(parts) - 1:
            fill -= 1
        tile = -1
        if part.block is not None:
            tile = len(tiles)
            block = blocks.setdefault(part.block, len(blocks))
            tiles.append(Tile(Rectangle(part.m[0], part.n[0], part.m[1], part.n[1]), block))
        fetch_bytes = part.fetched * limits.itemsize
        tokens.append(Token(part.m, part.k, part.n, part.steps, fill, *of_part[at], fetch_bytes, part.ahead, tile))
    counts = [0] * len(blocks)
    for each in tiles:
        counts[each.block] += 1
    places = tuple(_place(key, cut.output, (product.m, product.n)) for key in blocks)
    largest = max(each.cells for each in places) * limits.output_itemsize
    whole_bytes = min(operand_bytes, sum(each.nbytes for each in loads))
    output_blocks = min(cut.output_blocks, len(places))
    return Tiling(tuple(tokens), tuple(loads), tuple(tiles), places, tuple(counts), whole_bytes, output_blocks, largest)


def _cut(array: SystolicArray, product: Product, limits: Limits) -> _Cut:
    """The largest pieces of which the room holds those of two tokens."""
    folds, steps = limits.accumulators, max(limits.row_bytes // limits.itemsize, 1)
    output_blocks = limits.output_blocks
    # With `ws` a wide piece of A comes back for its next fold after the whole stream, which must fit.
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
            raise BufferTooSmall(f"{limits.room_bytes} bytes hold no two tokens; {2 * pieces + output} do")


def _pieces(array: SystolicArray, turns: tuple[int, int], steps: int, output_blocks: int, is_wide: bool) -> _Cut:
    """``turns``: folds down and across. ``is_wide``: a piece of A serves several folds down the array, with ``ws`` and
    ``is``."""
    rows, columns, dataflow = array
    down, folds = turns
    wide = -(-steps // rows) * rows if is_wide else rows
    if dataflow == "os":
        return _Cut((rows, steps), (steps, folds * columns), (rows, folds * columns), folds, steps, output_blocks, down)
    if dataflow == "ws":
        return _Cut((steps, wide), (rows, folds * columns), (steps, columns), folds, steps, output_blocks)
    return _Cut((folds * columns, wide), (rows, steps), (columns, steps), folds, steps, output_blocks)


def _clipped(cut: _Cut, product: Product) -> _Cut:
    """Pieces no larger than the matrices: what room they take. Their grids stay."""
    m, k, n = product
    return cut._replace(
        a=(min(cut.a[0], m), min(cut.a[1], k)),
        b=(min(cut.b[0], k), min(cut.b[1], n)),
        output=(min(cut.output[0], m), min(cut.output[1], n)),
    )


def _outputs_stay(array: SystolicArray, product: Product, cut: _Cut, kept: int) -> Iterator[_Part]:
    rows, columns, _ = array
    wide, high, before = cut.folds * columns, cut.down * rows, 1
    for i, j in _panels(-(-product.m // high), -(-product.n // wide), product.k * high, product.k * wide, kept):
        down = [_span(top, rows, product.m) for top in range(i * high, min((i + 1) * high, product.m), rows)]
        across = [_span(left, columns, product.n) for left in range(j * wide, min((j + 1) * wide, product.n), columns)]
        for t, first in enumerate(range(0, product.k, cut.steps)):
            k = _span(first, cut.steps, product.k)
            is_last = first + cut.steps >= product.k
            # Rows of A and columns of B stay in the array's buffers while the folds take turns. There are two of each,
            # so that those of the next turns come meanwhile.
            turns = len(down) * len(across)
            ahead, before = min(turns, before), turns
            # At last by rows, so that a block of outputs is whole before the next begins.
            for m, n in pairs(down, across) if is_last else [(m, n) for n in across for m in down]:
                fetched = k[1] * ((m[1] if n is across[0] else 0) + (n[1] if m is down[0] else 0))
                row = m[0] // rows
                yield _Part(m, k, n, k[1], is_last, (row, t), (t, j), fetched, (row, j) if is_last else None, ahead)


def _panels(down: int, across: int, a: int, b: int, kept: int) -> Iterator[tuple[int, int]]:
    """Rows and columns of folds, in the order that loads least. ``a``, ``b``: elements of a row and of a column."""
    high, wide = max(min((kept - b) // a, down), 1), max(min((kept - a) // b, across), 1)
    by_rows = down * a + across * b * -(-down // high)
    by_columns = across * b + down * a * -(-across // wide)
    if by_rows <= by_columns:
        yield from ((i, j) for rows in _even(down, high) for j in range(across) for i in rows)
    else:
        yield from ((i, j) for columns in _even(across, wide) for i in range(down) for j in columns)


def _even(count: int, most: int) -> list[range]:
    """Equal parts of at most so many."""
    parts = -(-count // most)
    return [range(count * at // parts, count * (at + 1) // parts) for at in range(parts)]


def _weights_stay(array: SystolicArray, product: Product, cut: _Cut, _kept: int) -> Iterator[_Part]:
    for n, s, k, t, m, is_last in _stationary(array, cut.folds, cut.steps, product.n, product.k, product.m):
        moved_in = 0 if t else k[1] * n[1]
        block = (t, n[0] // array.columns) if k[0] + k[1] == product.k else None
        a, b = (t, k[0] // cut.a[1]), (s, n[0] // (cut.folds * array.columns))
        yield _Part(m, k, n, m[1], is_last, a, b, m[1] * k[1] + moved_in, block)


def _inputs_stay(array: SystolicArray, product: Product, cut: _Cut, _kept: int) -> Iterator[_Part]:
    for m, s, k, t, n, is_last in _stationary(array, cut.folds, cut.steps, product.m, product.k, product.n):
        moved_in = 0 if t else k[1] * m[1]
        block = (m[0] // array.columns, t) if k[0] + k[1] == product.k else None
        a, b = (m[0] // (cut.folds * array.columns), k[0] // cut.a[1]), (s, t)
        yield _Part(m, k, n, n[1], is_last, a, b, n[1] * k[1] + moved_in, block)


def _stationary(
    array: SystolicArray, folds: int, steps: int, across: int, down: int, stream: int
) -> Iterator[tuple[tuple[int, int], int, tuple[int, int], int, tuple[int, int], bool]]:
    """Of each token: elements across the array, index and elements down the array, index and elements of the stream,
    and whether it is the last one of its fold."""
    rows, columns, _ = array
    for group in range(0, across, folds * columns):
        for s, first in enumerate(range(0, down, rows)):
            for left in range(group, min(group + folds * columns, across), columns):
                for t, begin in enumerate(range(0, stream, steps)):
                    part, is_last = _span(begin, steps, stream), begin + steps >= stream
                    yield _span(left, columns, across), s, _span(first, rows, down), t, part, is_last


def _span(first: int, most: int, end: int) -> tuple[int, int]:
    return first, min(most, end - first)


def _place(at: tuple[int, int], piece: tuple[int, int], matrix: tuple[int, int]) -> Rectangle:
    """A piece of a grid, less what is beyond the matrix."""
    top, left = at[0] * piece[0], at[1] * piece[1]
    return Rectangle(top, left, min(piece[0], matrix[0] - top), min(piece[1], matrix[1] - left))


class _Kept:
    """The pieces in the room while tokens pass, at most ``most_bytes``. ``loads``: operand, place, bytes; ``last``: the
    last token of each so far."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._used_bytes = 0
        self._number: dict[_Key, int] = {}
        self._following: dict[_Key, int] = {}
        self._furthest: list[tuple[int, _Key]] = []
        self.loads: list[tuple[int, Rectangle, int]] = []
        self.last: list[int] = []

    def has(self, key: _Key) -> bool:
        """Whether a piece is there."""
        return key in self._number

    def load(self, key: _Key, place: Rectangle, nbytes: int, needed: _Key) -> None:
        """Load a piece, in the room of others but for one that is needed with it."""
        while self._used_bytes + nbytes > self._most_bytes:
            self._drop_furthest(needed)
        self._used_bytes += nbytes
        self._number[key] = len(self.loads)
        self.loads.append((key[0], place, nbytes))
        self.last.append(0)

    def use(self, key: _Key, token: int, following: int) -> int:
        """A token needs a piece, and token ``following`` is the next one that does; the number of its load."""
        number = self._number[key]
        self.last[number] = token
        self._following[key] = following
        heappush(self._furthest, (-following, key))
        return number

    def _drop_furthest(self, needed: _Key) -> None:
        """Drop the piece whose next token is the furthest."""
        kept = None
        while True:
            entry = heappop(self._furthest)
            key = entry[1]
            if key not in self._number or self._following[key] != -entry[0]:
                continue  # it was dropped, or has been needed since
            if key != needed:
                break
            kept = entry
        if kept is not None:
            heappush(self._furthest, kept)
        self._used_bytes -= self.loads[self._number.pop(key)][2]


def _loads(
    parts: list[_Part], product: Product, cut: _Cut, itemsize: int, kept_bytes: int
) -> tuple[list[Load], list[tuple[int, int]]]:
    """The loads, and the two that each token needs."""
    keys: list[tuple[_Key, _Key]] = [((A, *part.a), (B, *part.b)) for part in parts]
    next_of: dict[_Key, int] = defaultdict(lambda: len(parts))
    following: list[tuple[int, int]] = []
    for at in range(len(parts) - 1, -1, -1):
        a, b = keys[at]
        following.append((next_of[a], next_of[b]))
        next_of[a] = next_of[b] = at
    following.reverse()
    pieces, matrices = (cut.a, cut.b), ((product.m, product.k), (product.k, product.n))
    kept = _Kept(kept_bytes)
    of_part: list[tuple[int, int]] = []
    for at, (a, b) in enumerate(keys):
        for key, needed in ((a, b), (b, a)):
            if not kept.has(key):
                place = _place(key[1:], pieces[key[0]], matrices[key[0]])
                kept.load(key, place, place.cells * itemsize, needed)
        of_part.append((kept.use(a, at, following[at][0]), kept.use(b, at, following[at][1])))
    return [Load(*load, last) for load, last in zip(kept.loads, kept.last, strict=True)], of_part


MOST_TOKENS = 2**17


class Tilings:
    """Tilings that were made, kept by shape: PEs with equal parts of a product share one.

    Kept are those used last, of at most ``most_tokens`` tokens together, as a tiling grows with its product, some 250
    bytes a token; the one used last is kept however many it has.
    """

    def __init__(self, most_tokens: int = MOST_TOKENS) -> None:
        self._most_tokens = most_tokens
        self._kept: OrderedDict[tuple[SystolicArray, Product, Limits], Tiling] = OrderedDict()
        self.tokens = 0

    def get(self, array: SystolicArray, product: Product, limits: Limits) -> Tiling:
        """As :func:`tiling`.

        Raises:
            BufferTooSmall: when the room holds no two tokens.
        """
        key = array, product, limits
        found = self._kept.get(key)
        if found is None:
            found = self._kept[key] = tiling(array, product, limits)
            self.tokens += len(found.tokens)
            while self.tokens > self._most_tokens and len(self._kept) > 1:
                self.tokens -= len(self._kept.popitem(last=False)[1].tokens)
        else:
            self._kept.move_to_end(key)
        return found
