"""Where the time of a composite command went: its span, divided into named parts, in two ways.

*Way*: each stage began when the last of what it waited for had ended, and so on back to the start of the command. So
the way to the command's last stage is what its time depends on: a part that is on it made faster makes the command
shorter, until another way is the longest. Work of the array that others hide is not on it.

*Parts*: while the array works, the time is its own, cycles, or fill and drain. While it does not, the time is of what
the way to its next token has more of than the way to its work before. Where a stage before the last one bounds the rate
of tokens, that is this stage, however short the wait for each token is. What is hidden behind the array is in no part.

Both fill the span without a rest. A way is kept as sums, so nothing grows with the product.
"""

from typing import Final, NamedTuple

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
    """Of a command that began at ``start_ps``. ``start``: what the first stages come after."""

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
