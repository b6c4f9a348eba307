"""The stages that tokens of a product pass: DMA in, fetch, GEMM, epilogue, store, DMA out (ADR-0014).

* Pieces of operands are loaded in the order of their first tokens, a few at a time, as far ahead as there is room.
* PE_FETCH_STORE fetches a token's operands through the TCM's read port into one of two buffers of the array. So it
  works one token ahead, and begins when the token before the last is through.
* PE_GEMM passes tokens in order. Sums of a finished output wait beside it; while there are ``waiting_tiles`` of them,
  no other is finished.
* PE_MATH does the epilogue, PE_FETCH_STORE stores the output through the TCM's write port when there is room, and
  PE_DMA writes a block of outputs when it is whole.

Units are those of the PE, one piece of work at a time; a token takes two events, an output some more.
"""

from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple, Protocol

from sipsim.engine import Engine
from sipsim.pe.dma import PeTcm
from sipsim.pe.gemm.path import CYCLES, DMA_IN, DMA_OUT, EPILOGUE, FETCH, FILL, OTHERS, STORE, Path, longer
from sipsim.pe.gemm.tiling import Tiling
from sipsim.pe.unit import FETCH_STORE, GEMM, MATH, Unit

Ps = int


class Transfers(Protocol):
    """What moves the data of a command, and computes them."""

    def load(self, number: int, arrived: Callable[[], None]) -> None:
        """Load a piece of an operand; ``arrived()`` when it is in the TCM."""

    def load_row(self, number: int, arrived: Callable[[], None]) -> None:
        """Load a row that the epilogue needs."""

    def write(self, block: int, written: Callable[[], None]) -> None:
        """Write a block of outputs; ``written()`` when it is in its memory."""


class Stages(NamedTuple):
    """The parts that the stages use, and their times.

    ``cycle_ps``: of the array. ``move_ps``: start-up of PE_FETCH_STORE. ``epilogue_ps``: of an output of so many cells.
    ``sum_bytes``: which the first token of an output fetches for each cell; 0 where sums start at zero.
    ``stored_bytes``: of a cell. ``loads``: how many may be on their way; 0 where the operands are in the TCM.
    ``rows``: which the epilogue needs.
    """

    engine: Engine
    units: Mapping[str, Unit]
    tcm: PeTcm
    cycle_ps: Ps
    move_ps: Ps
    epilogue_ps: Callable[[int], Ps]
    sum_bytes: int
    stored_bytes: int
    loads: int
    rows: int
    waiting_tiles: int


class Pipeline:
    """One command's way through the stages. ``ended(path)`` is called at the end of its last write."""

    def __init__(self, tiling: Tiling, stages: Stages, transfers: Transfers, ended: Callable[[Path], None]) -> None:
        self._engine = stages.engine
        self._stages = stages
        self._tiling = tiling
        self._transfers: Transfers | None = transfers
        self._ended: Callable[[Path], None] | None = ended
        self._mover, self._array = stages.units[FETCH_STORE], stages.units[GEMM]
        self._math = stages.units[MATH]
        self._used_by: dict[str, Path] = {}
        self._there = bytearray(len(tiling.loads)) if stages.loads else bytearray(b"\1") * len(tiling.loads)
        self._next_load = 0 if stages.loads else len(tiling.loads)
        self._loading = self._held_bytes = 0
        self._next_fetch = self._passed = 0
        self._is_fetching = self._is_storing = False
        self._fetched: deque[tuple[int, Path]] = deque()
        self._waiting = 0
        self._finished: deque[int] = deque()
        self._stored: dict[int, int] = {}
        self._left = len(tiling.blocks)
        self._missing_rows = stages.rows
        self._without_row: list[tuple[int, Path]] = []

    def start(self, path: Path) -> None:
        """Begin, now."""
        for number in range(self._missing_rows):
            assert self._transfers is not None
            self._transfers.load_row(number, partial(self._row_loaded, path, self._engine.now_ps))
        self._load(path)
        self._fetch(path)

    def _load(self, path: Path) -> None:
        """Load ahead, as far as there is room."""
        tiling, transfers = self._tiling, self._transfers
        assert transfers is not None
        while self._next_load < len(tiling.loads) and self._loading < self._stages.loads:
            number = self._next_load
            nbytes = tiling.loads[number].nbytes
            if self._held_bytes + nbytes > tiling.operand_bytes:
                return
            self._held_bytes += nbytes
            self._loading += 1
            self._next_load += 1
            transfers.load(number, partial(self._loaded, number, path, self._engine.now_ps))

    def _loaded(self, number: int, path: Path, begun_ps: Ps) -> None:
        path = longer(path, DMA_IN, begun_ps, self._engine.now_ps)
        self._there[number] = 1
        self._loading -= 1
        self._load(path)
        self._fetch(path)

    def _fetch(self, path: Path) -> None:
        """Fetch the operands of the next token, if they are there and a buffer is free."""
        at = self._next_fetch
        if self._is_fetching or at == len(self._tiling.tokens) or self._passed < at - 1:
            return
        token = self._tiling.tokens[at]
        if self._there[token.a] and self._there[token.b]:
            self._is_fetching = True
            self._when_free(self._mover, self._begin_fetch, path)

    def _begin_fetch(self, path: Path) -> None:
        token, stages = self._tiling.tokens[self._next_fetch], self._stages
        nbytes = token.fetch_bytes
        if stages.sum_bytes and not token.k[0]:
            nbytes += token.m[1] * token.n[1] * stages.sum_bytes
        ps = stages.move_ps + stages.tcm.take(nbytes)[0]
        path = self._use(self._mover, ps, path, FETCH)
        self._engine.at(path[0], partial(self._fetch_ended, path))

    def _fetch_ended(self, path: Path) -> None:
        at, tiling = self._next_fetch, self._tiling
        token = tiling.tokens[at]
        self._next_fetch += 1
        self._is_fetching = False
        for number in (token.a, token.b):
            load = tiling.loads[number]
            if load.last == at:
                self._held_bytes -= load.nbytes
        self._fetched.append((at, path))
        self._multiply(path)
        self._load(path)
        self._fetch(path)

    def _multiply(self, path: Path) -> None:
        """Pass on the tokens that were fetched, unless too many outputs wait."""
        stages, fetched = self._stages, self._fetched
        while fetched:
            at, own = fetched[0]
            token = self._tiling.tokens[at]
            if token.tile >= 0:
                if self._waiting >= stages.waiting_tiles:
                    return
                self._waiting += 1
            fetched.popleft()
            own = own if own[0] >= path[0] else path
            fill_ps = token.fill_cycles * stages.cycle_ps
            if fill_ps < 0:  # a single cell, and the last cycle is not counted (sipsim.pe.gemm.array)
                own = self._use(self._array, token.steps * stages.cycle_ps + fill_ps, own, CYCLES)
            else:
                own = self._use(self._array, token.steps * stages.cycle_ps, own, CYCLES)
                if fill_ps:
                    own = self._use(self._array, fill_ps, own, FILL)
            self._engine.at(own[0], partial(self._multiplied, token.tile, own))

    def _multiplied(self, tile: int, path: Path) -> None:
        self._passed += 1
        if tile >= 0:
            self._begin_epilogue(tile, path)
        self._fetch(path)

    def _begin_epilogue(self, tile: int, path: Path) -> None:
        ps = self._stages.epilogue_ps(self._tiling.tiles[tile].place.cells)
        if self._missing_rows:
            self._without_row.append((tile, path))
        elif ps:
            path = self._use(self._math, ps, path, EPILOGUE)
            self._engine.at(path[0], partial(self._finish, tile, path))
        else:
            self._finish(tile, path)

    def _row_loaded(self, path: Path, begun_ps: Ps) -> None:
        path = longer(path, DMA_IN, begun_ps, self._engine.now_ps)
        self._missing_rows -= 1
        while self._without_row and not self._missing_rows:
            self._begin_epilogue(self._without_row.pop(0)[0], path)

    def _finish(self, tile: int, path: Path) -> None:
        """An output is ready to be stored."""
        self._finished.append(tile)
        self._store(path)

    def _store(self, path: Path) -> None:
        """Store the next output, if there is room for its block."""
        if self._is_storing or not self._finished:
            return
        tiling = self._tiling
        block = tiling.tiles[self._finished[0]].block
        if block not in self._stored:
            if len(self._stored) == tiling.output_blocks:
                return
            self._stored[block] = 0
        self._is_storing = True
        self._when_free(self._mover, self._begin_store, path)

    def _begin_store(self, path: Path) -> None:
        tile, stages = self._tiling.tiles[self._finished[0]], self._stages
        ps = stages.move_ps + stages.tcm.put(tile.place.cells * stages.stored_bytes)
        path = self._use(self._mover, ps, path, STORE)
        self._engine.at(path[0], partial(self._store_ended, path))

    def _store_ended(self, path: Path) -> None:
        block = self._tiling.tiles[self._finished.popleft()].block
        self._is_storing = False
        self._waiting -= 1
        self._stored[block] += 1
        if self._stored[block] == self._tiling.tiles_of_block[block]:
            assert self._transfers is not None
            self._transfers.write(block, partial(self._written, block, path))
            if self._ended is None:
                return
        self._multiply(path)
        self._store(path)
        self._fetch(path)

    def _written(self, block: int, path: Path) -> None:
        now_ps = self._engine.now_ps
        if now_ps > path[0]:
            path = longer(path, DMA_OUT, path[0], now_ps)
        del self._stored[block]
        self._left -= 1
        if self._left:
            self._store(path)
            return
        # The parts refer to each other, and to the data: they are freed now, and not by a collection of cycles.
        ended, self._ended, self._transfers = self._ended, None, None
        assert ended is not None
        ended(path)

    def _use(self, unit: Unit, ps: Ps, path: Path, part: int) -> Path:
        """Have a unit work, now or when it is free; the path of the work's end."""
        start_ps = unit.take(path[0], ps)
        if start_ps > path[0]:
            before = self._used_by.get(unit.name)
            if before is not None and before[0] > path[0]:
                path = before
        path = self._used_by[unit.name] = longer(path, part, start_ps, start_ps + ps)
        return path

    def _when_free(self, unit: Unit, action: Callable[[Path], None], path: Path) -> None:
        """Call ``action(path)`` when a unit is free, now or later."""
        now_ps = self._engine.now_ps
        if unit.free_ps > now_ps:
            self._engine.at(unit.free_ps, partial(self._when_free, unit, action, path))
            return
        before = self._used_by.get(unit.name)
        if before is not None and path[0] < before[0]:
            path = before
        if path[0] < now_ps:
            path = longer(path, OTHERS, now_ps, now_ps)
        action(path)
