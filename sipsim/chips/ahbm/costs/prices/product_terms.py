"""What the way through a command of PE_GEMM costs on a machine, from what it took on that of the run.

The times of the way (:mod:`sipsim.chips.ahbm.gemm.pipeline.division`) are those of stages that wait for each other, so
a machine has no price of its own for them. Each is scaled: by what its stage costs on the machine, against what it
costs on that of the run. **Limit**: another way may be the longest then, so a saving is at most what is told; a run is
the judge.
"""

from typing import NamedTuple

from sipsim.chips.ahbm.costs.prices.transfer_terms import Term
from sipsim.chips.ahbm.gemm.pipeline.division import CYCLES, DMA_IN, DMA_OUT, EPILOGUE, FETCH, FILL, PARTS, STORE
from sipsim.chips.ahbm.memory.ports.port import MemoryPort
from sipsim.chips.ahbm.pe.math.math import PeMath
from sipsim.config.schema.components import ComponentsFile
from sipsim.core.units import ns_to_ps

Ps = int
_CELL_BYTES = 4
"""Of a sum."""
_START = ", start"


class Price(NamedTuple):
    """Of a usual piece of work of part ``part``, or of a share of it: ``name``, the keys it depends on, and time."""

    part: int
    name: str
    keys: tuple[str, ...]
    ps: Ps


def prices(components: ComponentsFile, tcm: MemoryPort, coming: Term, leaving: Term) -> tuple[Price, ...]:
    """Of all parts. ``tcm``: the ports of the PE. ``coming`` and ``leaving``: what bounds the rate of PE_DMA between
    the memories of operands and outputs and the PE."""
    cost, math = components.pe_gemm, PeMath(components.pe_math)
    cycle_ps, move_ps = ns_to_ps(1 / cost.clock_GHz), ns_to_ps(components.pe_fetch_store.overhead_ns)
    start_ps, cells_bytes = ns_to_ps(components.pe_math.overhead_ns), cost.rows * cost.columns * _CELL_BYTES
    move_key, start_key = ("pe_fetch_store.overhead_ns",), ("pe_math.overhead_ns",)
    fetched_ps, stored_ps = tcm.read_span_ps(cost.columns * cost.chunk_bytes), tcm.write_span_ps(cells_bytes)
    port_key = (f"tcm.{tcm.bandwidth_key}",)
    found = [
        _price(CYCLES, "", PARTS[CYCLES].keys, cycle_ps),
        _price(FILL, "", PARTS[FILL].keys, cycle_ps),
        _price(DMA_IN, "", _with_rates(DMA_IN, coming), coming.ps),
        _price(DMA_OUT, "", _with_rates(DMA_OUT, leaving), leaving.ps),
        _price(FETCH, _START, move_key, move_ps),
        _price(FETCH, "", port_key, fetched_ps),
        _price(EPILOGUE, _START, start_key, start_ps),
        _price(EPILOGUE, "", ("pe_math.bandwidth_GBps",), math.latency_ps(cells_bytes) - start_ps),
        _price(STORE, _START, move_key, move_ps),
        _price(STORE, "", port_key, stored_ps),
    ]
    priced = {each.part for each in found}
    return (*found, *(_price(part, "", PARTS[part].keys, 1) for part in range(len(PARTS)) if part not in priced))


def _price(part: int, what: str, keys: tuple[str, ...], ps: Ps) -> Price:
    return Price(part, f"PE_GEMM: {PARTS[part].name}{what}", keys, ps)


def _with_rates(part: int, bound: Term) -> tuple[str, ...]:
    """The keys of a part, with those of the bandwidths that bound it."""
    first, *others = PARTS[part].keys
    return tuple(dict.fromkeys((first, *bound.keys, *others)))


def scaled(way_ps: tuple[Ps, ...], here: tuple[Price, ...], run: tuple[Price, ...]) -> list[Term]:
    """The terms of a way on the machine with prices ``here``; ``run``: those of the machine where it took ``way_ps``.

    On that machine they add up to the way.
    """
    found = []
    for part, ps in enumerate(way_ps):
        pairs = [(now, was) for now, was in zip(here, run, strict=True) if now.part == part]
        left_ps, whole_ps = ps, sum(was.ps for _, was in pairs)
        for now, was in pairs[:-1]:
            share_ps = ps * was.ps // whole_ps if whole_ps else 0
            left_ps -= share_ps
            found.append(_scaled(share_ps, now, was))
        found.append(_scaled(left_ps, *pairs[-1]))
    return found


def _scaled(ps: Ps, now: Price, was: Price) -> Term:
    return Term(now.name, was.keys, ps * now.ps // was.ps if was.ps else ps)
