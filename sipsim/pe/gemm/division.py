"""Where the time of a composite command went: its span, divided into named parts.

The array is what everything else is there for. While it works, the time is its own: cycles, or fill and drain. While
it does not, the time is of what its next token waited for, back from there: each stage began when the last of what it
waited for had ended (``before``). After its last token the time is of what the end of the command waited for. So the
parts fill the span without a rest, and what is hidden behind the array is in none of them.
"""

from typing import Final, NamedTuple, Optional

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


class Stage(NamedTuple):
    """Work of part ``part``; ``before``: what it waited for last, None where that does not matter any more."""

    part: int
    start_ps: Ps
    end_ps: Ps
    before: Optional["Stage"]


class Division:
    """Of a command that began at ``start_ps``. ``parts_ps``: of :data:`PARTS`; they add up to the time until
    ``until_ps``, when the array has done what it was given."""

    def __init__(self, start_ps: Ps) -> None:
        self.until_ps = start_ps
        self.parts_ps = [0] * len(PARTS)

    def stage(self, part: int, start_ps: Ps, end_ps: Ps, before: Stage | None) -> Stage:
        """A stage beside the array. What ended before ``until_ps`` will never be asked for."""
        if before is not None and before.end_ps <= self.until_ps:
            before = None
        return Stage(part, start_ps, end_ps, before)

    def array(self, start_ps: Ps, steps_ps: Ps, fill_ps: Ps, before: Stage | None) -> Ps:
        """The array works: its steps, then fill and drain. The end."""
        self._idle(start_ps, before)
        self.parts_ps[CYCLES] += steps_ps
        self.parts_ps[FILL] += fill_ps
        self.until_ps = start_ps + steps_ps + fill_ps
        return self.until_ps

    def end(self, last: Stage) -> tuple[Ps, ...]:
        """The command ends with a stage: its parts."""
        self._idle(last.end_ps, last)
        return tuple(self.parts_ps)

    def _idle(self, until_ps: Ps, stage: Stage | None) -> None:
        """The array did nothing from the end of its work until a time, when a stage had ended, or others after it."""
        first_ps, parts = self.until_ps, self.parts_ps
        while stage is not None and until_ps > first_ps:
            end_ps = stage.end_ps if stage.end_ps > first_ps else first_ps
            parts[OTHERS] += until_ps - end_ps
            until_ps = stage.start_ps if stage.start_ps > first_ps else first_ps
            parts[stage.part] += end_ps - until_ps
            stage = stage.before
        if until_ps > first_ps:
            parts[OTHERS] += until_ps - first_ps
