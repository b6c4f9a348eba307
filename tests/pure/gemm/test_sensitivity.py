"""What a command's time is said to depend on, against runs in which each cost is halved."""

from typing import Any

import pytest
from products import Case, run_gemm, values

from sipsim.chips.ahbm.gemm.pipeline import (
    CYCLES,
    DMA_IN,
    DMA_OUT,
    EPILOGUE,
    FETCH,
    FILL,
    STORE,
    TimeBreakdown,
    Times,
)

ARRAY, DMA, PORTS, MATH = "array", "DMA", "ports", "epilogue"
PARTS = {ARRAY: (CYCLES, FILL), DMA: (DMA_IN, DMA_OUT), PORTS: (FETCH, STORE), MATH: (EPILOGUE,)}
COSTS: dict[str, dict[str, float]] = {
    ARRAY: {"pe_gemm.clock_GHz": 1},
    DMA: {
        "pe_dma.bandwidth_GBps": 64,
        "router.bandwidth_GBps": 64,
        "hbm.bandwidth_GBps": 64,
        "hbm.read_latency_ns": 100,
        "hbm.write_latency_ns": 20,
    },
    PORTS: {"tcm.bandwidth_GBps": 128, "pe_fetch_store.overhead_ns": 1},
    MATH: {"pe_math.bandwidth_GBps": 64, "pe_math.overhead_ns": 1},
}

CASES = [
    (Case(32, 2048, 32), {}, (), DMA, DMA),
    (Case(32, 512, 256), {}, (), DMA, DMA),
    (Case(8, 1024, 256), {}, (), DMA, DMA),
    (Case(1, 2048, 128), {}, (), DMA, DMA),
    (Case(64, 512, 64, "f32"), {}, (), DMA, DMA),
    (Case(128, 512, 128), {}, (), DMA, ARRAY),
    (Case(128, 1024, 128, "i8", "i32"), {}, (), DMA, ARRAY),
    (Case(64, 64, 256, "f16", "f32"), {}, (), DMA, ARRAY),
    (Case(128, 512, 128), {"hbm.read_latency_ns": 800}, (), DMA, ARRAY),
    (Case(128, 512, 128), {"tcm.bandwidth_GBps": 24}, (), PORTS, PORTS),
    (Case(128, 512, 128), {"pe_gemm.accumulators": 1}, (), PORTS, PORTS),
    (Case(128, 32, 128), {}, ("gelu",), MATH, MATH),
    (Case(256, 64, 64), {}, ("gelu", "gelu"), MATH, MATH),
    (Case(256, 128, 64), {"pe_gemm.dataflow": "ws"}, (), DMA, ARRAY),
]
"""The last two: what the array waits for most, and what the whole depends on most."""


def halved(settings: dict[str, Any], cost: str) -> dict[str, Any]:
    """The settings with each cost of a part halved: bandwidths and clocks doubled."""
    found = dict(settings)
    for key, value in COSTS[cost].items():
        value = settings.get(key, value)
        found[key] = value / 2 if key.endswith("_ns") else value * 2
    return found


def divided(monkeypatch: pytest.MonkeyPatch, case: Case, settings: dict[str, Any], epilogue: object) -> list[Times]:
    """The parts of a run's time, and its way."""
    found: list[Times] = []
    end = TimeBreakdown.end

    def noted(self: TimeBreakdown, last: Any) -> tuple[Times, Times]:
        found.extend(end(self, last))
        return found[0], found[1]

    given = {"hbm.read_latency_ns": 100, "hbm.write_latency_ns": 20, "tcm.bandwidth_GBps": 128, **settings}
    ports = {"bandwidth_GBps": given.pop("tcm.bandwidth_GBps"), "ports": "read_and_write"}
    with monkeypatch.context() as patch:
        patch.setattr(TimeBreakdown, "end", noted)
        run_gemm(case, values(case, largest=2), {**given, "tcm.kind": "tcm_ports", "tcm.params": ports}, epilogue)
    return found


@pytest.mark.ideal
@pytest.mark.parametrize(("case", "settings", "epilogue", "waited", "needed"), CASES)
def test_the_largest_part_saves_most(case, settings, epilogue, waited, needed, monkeypatch):
    """Both: of the parts beside the array's, and of those of the way."""
    of_array, way = (
        {name: sum(times[each] for each in parts) for name, parts in PARTS.items()}
        for times in divided(monkeypatch, case, settings, epilogue)
    )
    times_ps = {name: sum(divided(monkeypatch, case, halved(settings, name), epilogue)[1]) for name in PARTS}
    beside = [name for name in PARTS if name != ARRAY]
    assert max(beside, key=of_array.__getitem__) == min(beside, key=times_ps.__getitem__) == waited
    assert max(PARTS, key=way.__getitem__) == min(PARTS, key=times_ps.__getitem__) == needed
