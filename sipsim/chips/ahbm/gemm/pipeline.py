"""Pipeline of a product's tokens: DMA in, fetch, GEMM, epilogue, store, DMA out (ADR-0014).

The time of a composite command is attributed to the stages (:class:`TimeBreakdown`). Stages use the units of the PE,
which do one piece of work at a time. A token takes two events, an output some more.
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
    """Part of a command's time: the part's name, and the config keys with the largest effect on this time."""

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
"""Times of :data:`PARTS`, in ps."""


class Stage(NamedTuple):
    """Work of part number ``part`` that ended at ``end_ps``. ``path``: times per part, in ps, on its critical path."""

    part: int
    end_ps: Ps
    path: Times


class TimeBreakdown:
    """Breakdown of a command's time, from ``start_ps`` on, into :data:`PARTS`, in two forms.

    *Critical path*: each stage began when the last stage that it waited for had ended, and so on back to the start of
    the command. The time of the command depends on the path to its last stage: a faster part on this path shortens the
    command, until another path is the longest. Work of the array that other stages hide is not on the path.

    *Parts*: while the array works, the time belongs to the array: cycles, or fill and drain. While the array is idle,
    the time belongs to the parts by which the path to the next token exceeds the path to the array's last work. If an
    earlier stage limits the rate of tokens, the time belongs to that stage, even if each wait is short. Time that the
    array hides belongs to no part.

    Each form adds up to the command's time. A path is stored as sums, so memory does not grow with the product.
    ``start``: the predecessor of the first stages.
    """

    def __init__(self, start_ps: Ps) -> None:
        self.start = Stage(OTHERS, start_ps, (0,) * len(PARTS))
        self._array = self.start
        self._parts_ps = [0] * len(PARTS)

    def stage(self, part: int, start_ps: Ps, end_ps: Ps, before: Stage) -> Stage:
        """Add work of a stage other than the array; ``before``: the stage whose end it waited for last."""
        path = list(before.path)
        path[OTHERS] += start_ps - before.end_ps
        path[part] += end_ps - start_ps
        return Stage(part, end_ps, tuple(path))

    def array(self, start_ps: Ps, steps_ps: Ps, fill_ps: Ps, before: Stage) -> Stage:
        """Add work of the array: steps, then fill and drain; ``before``: the stage whose end it waited for last."""
        if before.end_ps > self._array.end_ps:
            self._idle(before)
        else:
            before = self._array
        self._parts_ps[OTHERS] += start_ps - before.end_ps
        path = list(before.path)
        path[OTHERS] += start_ps - before.end_ps
        path[CYCLES] += steps_ps
        path[FILL] += fill_ps
        self._parts_ps[CYCLES] += steps_ps
        self._parts_ps[FILL] += fill_ps
        self._array = Stage(CYCLES, start_ps + steps_ps + fill_ps, tuple(path))
        return self._array

    def end(self, last: Stage) -> tuple[Times, Times]:
        """End the command with stage ``last``; return the times of the parts and of the critical path."""
        self._idle(last)
        return tuple(self._parts_ps), last.path

    def _idle(self, stage: Stage) -> None:
        """Attribute the array's idle time, from the end of its work to the end of ``stage``."""
        idle_ps = remaining_ps = stage.end_ps - self._array.end_ps
        excess = [ps - array_ps for ps, array_ps in zip(stage.path, self._array.path, strict=True)]
        waited = {each: ps for each, ps in enumerate(excess) if ps > 0 and each not in (CYCLES, FILL)}
        whole_ps = max(sum(waited.values()), idle_ps)
        for each, ps in waited.items():
            share_ps = idle_ps * ps // whole_ps
            self._parts_ps[each] += share_ps
            remaining_ps -= share_ps
        self._parts_ps[max(waited, key=lambda each: waited[each], default=stage.part)] += remaining_ps


class Transfers(Protocol):
    """Interface that moves the data of a command and computes the outputs."""

    def load(self, number: int, arrived: Callable[[], None]) -> None:
        """Load a piece of an operand; call ``arrived()`` when it is in the TCM."""

    @property
    def has_others(self) -> bool:
        """Whether PE_DMA has loads or stores of the kernel."""

    def load_row(self, number: int, arrived: Callable[[], None]) -> None:
        """Load a row that the epilogue needs."""

    def write(self, block: int, written: Callable[[], None]) -> None:
        """Write a block of outputs; call ``written()`` when it is in its memory."""


class Stages(NamedTuple):
    """Units that the stages use, and the times and limits of the stages.

    ``dma``: PE_DMA, which makes the transfers of PE_FETCH_STORE within the PE. ``cycle_ps``: cycle of the array.
    ``move_ps``: start-up of PE_FETCH_STORE. ``epilogue_ps(cells)`` returns the time of the epilogue. ``sum_bytes``:
    bytes per cell that the first token of an output fetches, 0 if sums start at zero. ``stored_bytes``: bytes of an
    output cell. ``loads``: maximum of loads in flight, 0 if the operands are in the TCM. While the kernel has loads or
    stores, a load waits until the loads in flight, without the oldest, have less than ``shared_bytes``. ``rows``:
    number of rows that the epilogue loads. ``waiting_tiles``: maximum of outputs that wait for the epilogue.
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
    """Pipeline that runs one command through the stages.

    * PE_DMA loads pieces of operands in the order of their first tokens, a few at a time, as far ahead as the buffer
      allows. While the kernel has loads or stores, a command that needs PE_DMA all the time has fewer bytes in flight,
      so that kernel and command progress. A command that needs PE_DMA mostly at its beginning has no such limit.
    * PE_FETCH_STORE fetches a token's operands through the TCM's read port into double buffers of the array: operands
      of the next interleaved folds are fetched while the array works on the current folds.
    * PE_GEMM processes tokens in order. Sums of a finished output wait for the epilogue; while ``waiting_tiles``
      outputs wait, PE_GEMM finishes no other output.
    * PE_MATH does the epilogue, PE_FETCH_STORE stores the output through the TCM's write port when a buffer is free,
      and PE_DMA writes a block of outputs when it is complete.

    ``ended(parts_ps, path_ps)`` is called at the end of the last write, with both forms of the time since ``start_ps``
    (:class:`TimeBreakdown`).
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
        self._breakdown = TimeBreakdown(start_ps)
        self._math, self._array, self._mover = stages.units
        self._last_move: Stage | None = None
        self._last_math: Stage | None = None
        has_loads = bool(stages.loads)
        self._is_loaded = bytearray(len(tiling.loads)) if has_loads else bytearray(b"\1") * len(tiling.loads)
        self._next_load = 0 if has_loads else len(tiling.loads)
        self._in_flight: dict[int, int] = {}
        self._held_bytes = 0
        self._next_fetch = self._done_tokens = 0
        self._is_fetching = self._is_storing = False
        self._fetched: deque[tuple[int, Stage]] = deque()
        self._waiting_tiles = 0
        self._missing_rows = stages.rows
        self._tiles_without_row: list[int] = []
        self._finished: deque[int] = deque()
        self._stored: dict[int, int] = {}
        self._blocks_remaining = len(tiling.blocks)

    def start(self) -> None:
        """Start the first loads and fetches now."""
        for number in range(self._missing_rows):
            assert self._transfers is not None
            self._transfers.load_row(number, partial(self._row_loaded, self._engine.now_ps))
        self._load(self._breakdown.start)
        self._fetch(self._breakdown.start)

    def _load(self, before: Stage) -> None:
        """Load ahead as far as the buffer allows."""
        tiling, transfers, in_flight = self._tiling, self._transfers, self._in_flight
        assert transfers is not None
        while self._next_load < len(tiling.loads) and len(in_flight) < self._stages.loads:
            number = self._next_load
            nbytes = tiling.loads[number].nbytes
            if self._held_bytes + nbytes > tiling.operand_bytes:
                return
            if in_flight and transfers.has_others:
                behind_bytes = sum(in_flight.values()) - next(iter(in_flight.values()))
                if behind_bytes >= self._stages.shared_bytes:
                    return
            self._held_bytes += nbytes
            in_flight[number] = nbytes
            self._next_load += 1
            transfers.load(number, partial(self._loaded, number, before, self._engine.now_ps))

    def _loaded(self, number: int, before: Stage, start_ps: Ps) -> None:
        stage = self._breakdown.stage(DMA_IN, start_ps, self._engine.now_ps, before)
        self._is_loaded[number] = 1
        del self._in_flight[number]
        self._load(stage)
        self._fetch(stage)

    def _fetch(self, before: Stage) -> None:
        """Fetch the next token's operands, if they are loaded and a buffer of the array is free."""
        index = self._next_fetch
        if self._is_fetching or index == len(self._tiling.tokens):
            return
        token = self._tiling.tokens[index]
        if self._done_tokens < index - token.ahead:
            return
        if self._is_loaded[token.a] and self._is_loaded[token.b]:
            self._is_fetching = True
            self._mover.when_free(partial(self._begin_fetch, before))

    def _begin_fetch(self, before: Stage) -> None:
        token, stages = self._tiling.tokens[self._next_fetch], self._stages
        nbytes = token.fetch_bytes
        if stages.sum_bytes and not token.k[0]:
            nbytes += token.m[1] * token.n[1] * stages.sum_bytes
        stages.dma.fetch(nbytes, stages.move_ps, partial(self._fetch_ended, before, self._engine.now_ps))

    def _fetch_ended(self, before: Stage, start_ps: Ps) -> None:
        stage = self._moved(FETCH, start_ps, before)
        index, tiling = self._next_fetch, self._tiling
        token = tiling.tokens[index]
        self._next_fetch += 1
        self._is_fetching = False
        for number in (token.a, token.b):
            load = tiling.loads[number]
            if load.last == index:
                self._held_bytes -= load.nbytes
        self._fetched.append((index, stage))
        self._multiply(stage)
        self._load(stage)
        self._fetch(stage)
        self._mover.begin_next()

    def _multiply(self, now: Stage) -> None:
        """Process the fetched tokens, unless too many outputs wait. ``now``: the stage that has just ended."""
        stages, fetched, now_ps = self._stages, self._fetched, self._engine.now_ps
        while fetched:
            index, stage = fetched[0]
            token = self._tiling.tokens[index]
            if token.tile >= 0:
                if self._waiting_tiles >= stages.waiting_tiles:
                    return
                self._waiting_tiles += 1
            fetched.popleft()
            steps_ps, fill_ps = token.steps * stages.cycle_ps, token.fill_cycles * stages.cycle_ps
            start_ps = self._array.take(now_ps, steps_ps + fill_ps)
            before = stage if stage.end_ps == now_ps else now
            worked = self._breakdown.array(start_ps, steps_ps, fill_ps, before)
            self._engine.at(worked.end_ps, partial(self._multiplied, token.tile, worked))

    def _multiplied(self, tile: int, stage: Stage) -> None:
        self._done_tokens += 1
        if tile >= 0:
            self._begin_epilogue(tile, stage)
        self._fetch(stage)

    def _begin_epilogue(self, tile: int, before: Stage) -> None:
        ps = self._stages.epilogue_ps(self._tiling.tiles[tile].place.cells)
        if self._missing_rows:
            self._tiles_without_row.append(tile)
        elif ps:
            self._math.when_free(partial(self._start_epilogue, tile, ps, before, self._engine.now_ps))
        else:
            self._finish(tile, before)

    def _start_epilogue(self, tile: int, ps: Ps, before: Stage, ready_ps: Ps) -> None:
        """Begin the epilogue of an output that was ready at ``ready_ps``."""
        start_ps, last = self._engine.now_ps, self._last_math
        if last is not None and last.end_ps > ready_ps:
            before = last
        stage = self._last_math = self._breakdown.stage(EPILOGUE, start_ps, start_ps + ps, before)
        self._engine.at(stage.end_ps, partial(self._end_epilogue, tile, stage, start_ps))

    def _end_epilogue(self, tile: int, stage: Stage, start_ps: Ps) -> None:
        self._math.end(start_ps, stage.end_ps)
        self._math.begin_next()
        self._finish(tile, stage)

    def _row_loaded(self, start_ps: Ps) -> None:
        stage = self._breakdown.stage(DMA_IN, start_ps, self._engine.now_ps, self._breakdown.start)
        self._missing_rows -= 1
        while self._tiles_without_row and not self._missing_rows:
            self._begin_epilogue(self._tiles_without_row.pop(0), stage)

    def _finish(self, tile: int, before: Stage) -> None:
        """Queue an output for its store."""
        self._finished.append(tile)
        self._store(before)

    def _store(self, before: Stage) -> None:
        """Store the next output, if a buffer is free for its block."""
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

    def _store_ended(self, before: Stage, start_ps: Ps) -> None:
        stage = self._moved(STORE, start_ps, before)
        block = self._tiling.tiles[self._finished.popleft()].block
        self._is_storing = False
        self._waiting_tiles -= 1
        self._stored[block] += 1
        if self._stored[block] == self._tiling.tiles_of_block[block]:
            assert self._transfers is not None
            self._transfers.write(block, partial(self._written, block, stage))
            if self._ended is None:
                self._mover.begin_next()
                return
        self._multiply(stage)
        self._store(stage)
        self._fetch(stage)
        self._mover.begin_next()

    def _written(self, block: int, before: Stage) -> None:
        stage, now_ps = before, self._engine.now_ps
        if now_ps > before.end_ps:
            stage = self._breakdown.stage(DMA_OUT, before.end_ps, now_ps, before)
        del self._stored[block]
        self._blocks_remaining -= 1
        if self._blocks_remaining:
            self._store(stage)
            return
        # Break the reference cycle, so that the data are freed now and not by the cycle collector.
        ended, self._ended, self._transfers = self._ended, None, None
        assert ended is not None
        ended(*self._breakdown.end(stage))

    def _moved(self, part: int, start_ps: Ps, before: Stage) -> Stage:
        """Record a PE_FETCH_STORE transfer that ends now. Its cause is the transfer just before it, or ``before``."""
        now_ps, last = self._engine.now_ps, self._last_move
        if last is not None and last.end_ps == start_ps:
            before = last
        self._mover.end(start_ps, now_ps)
        stage = self._last_move = self._breakdown.stage(part, start_ps, now_ps, before)
        return stage
