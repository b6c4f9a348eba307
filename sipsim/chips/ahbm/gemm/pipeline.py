"""The stages that tokens of a product pass: DMA in, fetch, GEMM, epilogue, store, DMA out (ADR-0014).

The span of a composite command is divided among them (:class:`Division`). Units are those of the PE, one piece of work
at a time; a token takes two events, an output some more.
"""

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple, Protocol

from sipsim.chips.ahbm.gemm.tiling import Tiling
from sipsim.chips.ahbm.pe.dma import PeDma
from sipsim.chips.ahbm.pe.engine import Units
from sipsim.core.engine import Engine

Ps = int
CYCLES: Final = 0
FILL: Final = 1
DMA_IN: Final = 2
OTHERS: Final = 3
FETCH: Final = 4
EPILOGUE: Final = 5
STORE: Final = 6
DMA_OUT: Final = 7


class Part(NamedTuple):
    """A name, and the config keys that the time of it depends on first."""

    name: str
    keys: tuple[str, ...]


_READ = "tcm.params.bandwidth_GBps"
_MOVE = "pe_dma.bandwidth_GBps"
PARTS: Final = (
    Part("cycles", ("pe_gemm.clock_GHz", "pe_gemm.rows", "pe_gemm.columns")),
    Part("fill and drain", ("pe_gemm.clock_GHz", "pe_gemm.dataflow")),
    Part("DMA in", (_MOVE, "pe_gemm.outstanding_loads", "pe_gemm.buffer_KiB")),
    Part("other commands", ()),
    Part("fetch from TCM", (_READ, "pe_fetch_store.overhead_ns")),
    Part("epilogue", ("pe_math.bandwidth_GBps", "pe_math.overhead_ns")),
    Part("store to TCM", (_READ, "pe_fetch_store.overhead_ns")),
    Part("DMA out", (_MOVE, "pe_gemm.outstanding_stores")),
)


Times = tuple[Ps, ...]
"""Of :data:`PARTS`."""


class Stage(NamedTuple):
    """Work of part ``part`` that ended at ``end_ps``. ``way``: the times from the start of the command to its end."""

    part: int
    end_ps: Ps
    way: Times


class Division:
    """Where the time of a command went that began at ``start_ps``: its span, divided into named parts, in two ways.

    *Way*: each stage began when the last of what it waited for had ended, and so on back to the start of the command.
    So the way to the command's last stage is what its time depends on: a part that is on it made faster makes the
    command shorter, until another way is the longest. Work of the array that others hide is not on it.

    *Parts*: while the array works, the time is its own, cycles, or fill and drain. While it does not, the time is of
    what the way to its next token has more of than the way to its work before. Where a stage before the last one bounds
    the rate of tokens, that is this stage, however short the wait for each token is. What is hidden behind the array is
    in no part.

    Both fill the span without a rest. A way is kept as sums, so nothing grows with the product. ``start``: what the
    first stages come after.
    """

    def __init__(self, start_ps: Ps) -> None:
        self.start = Stage(OTHERS, start_ps, (0,) * len(PARTS))
        self._array = self.start
        self._parts_ps = [0] * len(PARTS)

    def stage(self, part: int, start_ps: Ps, end_ps: Ps, before: Stage) -> Stage:
        """A stage beside the array; ``before``: what it waited for last."""
        way = list(before.way)
        way[OTHERS] += start_ps - before.end_ps
        way[part] += end_ps - start_ps
        return Stage(part, end_ps, tuple(way))

    def array(self, start_ps: Ps, steps_ps: Ps, fill_ps: Ps, before: Stage) -> Stage:
        """The array works: its steps, then fill and drain."""
        if before.end_ps > self._array.end_ps:
            self._idle(before)
        else:
            before = self._array
        self._parts_ps[OTHERS] += start_ps - before.end_ps
        way = list(before.way)
        way[OTHERS] += start_ps - before.end_ps
        way[CYCLES] += steps_ps
        way[FILL] += fill_ps
        self._parts_ps[CYCLES] += steps_ps
        self._parts_ps[FILL] += fill_ps
        self._array = Stage(CYCLES, start_ps + steps_ps + fill_ps, tuple(way))
        return self._array

    def end(self, last: Stage) -> tuple[Times, Times]:
        """The command ends with a stage: its parts, and the way."""
        self._idle(last)
        return tuple(self._parts_ps), last.way

    def _idle(self, stage: Stage) -> None:
        """The array did nothing from the end of its work until that of a stage."""
        idle_ps = left_ps = stage.end_ps - self._array.end_ps
        more = [ps - been for ps, been in zip(stage.way, self._array.way, strict=True)]
        waited = {each: ps for each, ps in enumerate(more) if ps > 0 and each not in (CYCLES, FILL)}
        whole_ps = max(sum(waited.values()), idle_ps)
        for each, ps in waited.items():
            share_ps = idle_ps * ps // whole_ps
            self._parts_ps[each] += share_ps
            left_ps -= share_ps
        self._parts_ps[max(waited, key=lambda each: waited[each], default=stage.part)] += left_ps


class Transfers(Protocol):
    """What moves the data of a command, and computes them."""

    def load(self, number: int, arrived: Callable[[], None]) -> None:
        """Load a piece of an operand; ``arrived()`` when it is in the TCM."""

    @property
    def has_others(self) -> bool:
        """Whether PE_DMA has loads or stores of the kernel."""

    def load_row(self, number: int, arrived: Callable[[], None]) -> None:
        """Load a row that the epilogue needs."""

    def write(self, block: int, written: Callable[[], None]) -> None:
        """Write a block of outputs; ``written()`` when it is in its memory."""


class Stages(NamedTuple):
    """The parts that the stages use, and their times.

    ``dma``: PE_DMA, which makes the transfers of PE_FETCH_STORE within the PE. ``cycle_ps``: of the array.
    ``move_ps``: start-up of PE_FETCH_STORE. ``epilogue_ps``: of an output of so many cells.
    ``sum_bytes``: which the first token of an output fetches for each cell; 0 where sums start at zero.
    ``stored_bytes``: of a cell. ``loads``: how many may be on their way; 0 where the operands are in the TCM. Beside
    loads and stores of the kernel, none is added to ``shared_bytes`` or more behind the first of them.
    ``rows``: which the epilogue needs.
    """

    engine: Engine
    units: Units
    dma: PeDma
    cycle_ps: Ps
    move_ps: Ps
    epilogue_ps: Callable[[int], Ps]
    sum_bytes: int
    stored_bytes: int
    loads: int
    shared_bytes: int
    rows: int
    waiting_tiles: int


class Pipeline:
    """One command's way through the stages.

    * Pieces of operands are loaded in the order of their first tokens, a few at a time, as far ahead as there is room.
      While PE_DMA has loads or stores of the kernel, a command that needs it all the time has fewer bytes on their way,
      so that these take turns. One that needs it at its beginning most has time for them later.
    * PE_FETCH_STORE fetches a token's operands through the TCM's read port into buffers of the array, of which there
      are two for each: those of folds that take turns together are fetched while the array works on those before.
    * PE_GEMM passes tokens in order. Sums of a finished output wait beside it; while there are ``waiting_tiles`` of
      them, no other is finished.
    * PE_MATH does the epilogue, PE_FETCH_STORE stores the output through the TCM's write port when there is room, and
      PE_DMA writes a block of outputs when it is whole.

    ``ended(parts_ps, way_ps)`` is called at the end of its last write, with the times since ``start_ps``
    (:class:`Division`).
    """

    def __init__(
        self,
        tiling: Tiling,
        stages: Stages,
        transfers: Transfers,
        start_ps: Ps,
        ended: Callable[[Times, Times], None],
    ) -> None:
        self._engine = stages.engine
        self._stages = stages
        self._tiling = tiling
        self._transfers: Transfers | None = transfers
        self._ended: Callable[[Times, Times], None] | None = ended
        self._division = Division(start_ps)
        self._math, self._array, self._mover = stages.units
        self._last_move: Stage | None = None
        self._last_math: Stage | None = None
        has_loads = bool(stages.loads)
        self._there = bytearray(len(tiling.loads)) if has_loads else bytearray(b"\1") * len(tiling.loads)
        self._next_load = 0 if has_loads else len(tiling.loads)
        self._coming: dict[int, int] = {}
        self._held_bytes = 0
        self._next_fetch = self._passed = 0
        self._is_fetching = self._is_storing = False
        self._fetched: deque[tuple[int, Stage]] = deque()
        self._waiting = 0
        self._missing_rows = stages.rows
        self._without_row: list[int] = []
        self._finished: deque[int] = deque()
        self._stored: dict[int, int] = {}
        self._left = len(tiling.blocks)

    def start(self) -> None:
        """Begin, now."""
        for number in range(self._missing_rows):
            assert self._transfers is not None
            self._transfers.load_row(number, partial(self._row_loaded, self._engine.now_ps))
        self._load(self._division.start)
        self._fetch(self._division.start)

    def _load(self, before: Stage) -> None:
        """Load ahead, as far as there is room."""
        tiling, transfers, coming = self._tiling, self._transfers, self._coming
        assert transfers is not None
        while self._next_load < len(tiling.loads) and len(coming) < self._stages.loads:
            number = self._next_load
            nbytes = tiling.loads[number].nbytes
            if self._held_bytes + nbytes > tiling.operand_bytes:
                return
            if coming and transfers.has_others:
                behind_bytes = sum(coming.values()) - next(iter(coming.values()))
                if behind_bytes >= self._stages.shared_bytes:
                    return
            self._held_bytes += nbytes
            coming[number] = nbytes
            self._next_load += 1
            transfers.load(number, partial(self._loaded, number, before, self._engine.now_ps))

    def _loaded(self, number: int, before: Stage, begun_ps: Ps) -> None:
        stage = self._division.stage(DMA_IN, begun_ps, self._engine.now_ps, before)
        self._there[number] = 1
        del self._coming[number]
        self._load(stage)
        self._fetch(stage)

    def _fetch(self, before: Stage) -> None:
        """Fetch the operands of the next token, if they are there and a buffer is free."""
        at = self._next_fetch
        if self._is_fetching or at == len(self._tiling.tokens):
            return
        token = self._tiling.tokens[at]
        if self._passed < at - token.ahead:
            return
        if self._there[token.a] and self._there[token.b]:
            self._is_fetching = True
            self._mover.when_free(partial(self._begin_fetch, before))

    def _begin_fetch(self, before: Stage) -> None:
        token, stages = self._tiling.tokens[self._next_fetch], self._stages
        nbytes = token.fetch_bytes
        if stages.sum_bytes and not token.k[0]:
            nbytes += token.m[1] * token.n[1] * stages.sum_bytes
        stages.dma.fetch(nbytes, stages.move_ps, partial(self._fetch_ended, before, self._engine.now_ps))

    def _fetch_ended(self, before: Stage, begun_ps: Ps) -> None:
        stage = self._moved(FETCH, begun_ps, before)
        at, tiling = self._next_fetch, self._tiling
        token = tiling.tokens[at]
        self._next_fetch += 1
        self._is_fetching = False
        for number in (token.a, token.b):
            load = tiling.loads[number]
            if load.last == at:
                self._held_bytes -= load.nbytes
        self._fetched.append((at, stage))
        self._multiply(stage)
        self._load(stage)
        self._fetch(stage)
        self._mover.go_on()

    def _multiply(self, now: Stage) -> None:
        """Pass on the tokens that were fetched, unless too many outputs wait. ``now``: the stage that has ended."""
        stages, fetched, now_ps = self._stages, self._fetched, self._engine.now_ps
        while fetched:
            at, stage = fetched[0]
            token = self._tiling.tokens[at]
            if token.tile >= 0:
                if self._waiting >= stages.waiting_tiles:
                    return
                self._waiting += 1
            fetched.popleft()
            steps_ps, fill_ps = token.steps * stages.cycle_ps, token.fill_cycles * stages.cycle_ps
            start_ps = self._array.take(now_ps, steps_ps + fill_ps)
            before = stage if stage.end_ps == now_ps else now
            worked = self._division.array(start_ps, steps_ps, fill_ps, before)
            self._engine.at(worked.end_ps, partial(self._multiplied, token.tile, worked))

    def _multiplied(self, tile: int, stage: Stage) -> None:
        self._passed += 1
        if tile >= 0:
            self._begin_epilogue(tile, stage)
        self._fetch(stage)

    def _begin_epilogue(self, tile: int, before: Stage) -> None:
        ps = self._stages.epilogue_ps(self._tiling.tiles[tile].place.cells)
        if self._missing_rows:
            self._without_row.append(tile)
        elif ps:
            self._math.when_free(partial(self._start_epilogue, tile, ps, before, self._engine.now_ps))
        else:
            self._finish(tile, before)

    def _start_epilogue(self, tile: int, ps: Ps, before: Stage, ready_ps: Ps) -> None:
        """PE_MATH begins the epilogue of an output that was ready at ``ready_ps``."""
        begun_ps, last = self._engine.now_ps, self._last_math
        if last is not None and last.end_ps > ready_ps:
            before = last
        stage = self._last_math = self._division.stage(EPILOGUE, begun_ps, begun_ps + ps, before)
        self._engine.at(stage.end_ps, partial(self._end_epilogue, tile, stage, begun_ps))

    def _end_epilogue(self, tile: int, stage: Stage, begun_ps: Ps) -> None:
        self._math.end(begun_ps, stage.end_ps)
        self._math.go_on()
        self._finish(tile, stage)

    def _row_loaded(self, begun_ps: Ps) -> None:
        stage = self._division.stage(DMA_IN, begun_ps, self._engine.now_ps, self._division.start)
        self._missing_rows -= 1
        while self._without_row and not self._missing_rows:
            self._begin_epilogue(self._without_row.pop(0), stage)

    def _finish(self, tile: int, before: Stage) -> None:
        """An output is ready to be stored."""
        self._finished.append(tile)
        self._store(before)

    def _store(self, before: Stage) -> None:
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
        self._mover.when_free(partial(self._begin_store, before))

    def _begin_store(self, before: Stage) -> None:
        tile, stages = self._tiling.tiles[self._finished[0]], self._stages
        nbytes, ended = tile.place.cells * stages.stored_bytes, partial(self._store_ended, before, self._engine.now_ps)
        stages.dma.put(nbytes, stages.move_ps, ended)

    def _store_ended(self, before: Stage, begun_ps: Ps) -> None:
        stage = self._moved(STORE, begun_ps, before)
        block = self._tiling.tiles[self._finished.popleft()].block
        self._is_storing = False
        self._waiting -= 1
        self._stored[block] += 1
        if self._stored[block] == self._tiling.tiles_of_block[block]:
            assert self._transfers is not None
            self._transfers.write(block, partial(self._written, block, stage))
            if self._ended is None:
                self._mover.go_on()
                return
        self._multiply(stage)
        self._store(stage)
        self._fetch(stage)
        self._mover.go_on()

    def _written(self, block: int, before: Stage) -> None:
        stage, now_ps = before, self._engine.now_ps
        if now_ps > before.end_ps:
            stage = self._division.stage(DMA_OUT, before.end_ps, now_ps, before)
        del self._stored[block]
        self._left -= 1
        if self._left:
            self._store(stage)
            return
        # The parts refer to each other, and to the data: they are freed now, and not by a collection of cycles.
        ended, self._ended, self._transfers = self._ended, None, None
        assert ended is not None
        ended(*self._division.end(stage))

    def _moved(self, part: int, begun_ps: Ps, before: Stage) -> Stage:
        """PE_FETCH_STORE has moved something until now; its last work was what bound it, if that had just ended."""
        now_ps, last = self._engine.now_ps, self._last_move
        if last is not None and last.end_ps == begun_ps:
            before = last
        self._mover.end(begun_ps, now_ps)
        stage = self._last_move = self._division.stage(part, begun_ps, now_ps, before)
        return stage
