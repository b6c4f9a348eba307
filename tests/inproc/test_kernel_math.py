"""Kernels that compute: the explanation of a run knows every command."""

from pathlib import Path

import pytest
from explained import check_path, explained
from runs import ccl_file

from sipsim.chips.ahbm.costs.prices import SPECIAL

KERNEL = """
def kernel_args(world_size, n_elem):
    return n_elem,

def kernel(t_ptr, n_elem, tl):
    row = t_ptr + tl.program_id(1) * n_elem * t_ptr.dtype.itemsize
    x = tl.load(row, (16, 32), stride=64)
    later = tl.load_async(row, n_elem)
    e = tl.exp(x - tl.max(x, 1, keep_dims=True)).to("f32")
    y = e / tl.sum(e, 1)[:, None]
    y = tl.where(y > 0.5, tl.gelu(y), tl.broadcast_to(tl.zeros((1, 1), "f32"), (16, 32)))
    tl.delay(40)
    tl.store(row, tl.trans(tl.trans(y)).to(t_ptr.dtype), stride=64)
    tl.store_async(row, tl.wait(later) + tl.arange(0, n_elem).to(t_ptr.dtype))
"""
FLAGS = {"sips": 1, "dtype": "bf16", "n_elem": 1024, "set": ["sip.cube_mesh={w: 2, h: 1}"]}
COSTS = ["pe_math.special_factor=4", "pe_cpu.issue_ns=15", "pe_scheduler.queue_depth=16"]
MEMORY = [
    "hbm.kind=hbm_controller",
    "hbm.params={preset: hbm3_6400}",
    "hbm.read_latency_ns=99",
    "tcm.kind=tcm_ports",
    "tcm.params={bandwidth_GBps: 128}",
]
SLOW_PORT = [*MEMORY[:-1], "tcm.params={bandwidth_GBps: 24, ports: shared}"]
SLOW_BANKS = [*MEMORY[:-1], "tcm.params={bandwidth_GBps: 8, ports: shared, banks: 4}"]
BANDWIDTH = "pe_math.bandwidth_GBps"


def flags(folder: Path, *settings: str) -> dict[str, object]:
    path = ccl_file(folder, KERNEL, rank_per="cube", topology="ring_1d")[1]
    return {**FLAGS, "algorithm": "mine", "ccl": path, "set": [*FLAGS["set"], *settings]}  # type: ignore[misc]


@pytest.mark.parametrize(
    "settings",
    [(), COSTS, [*COSTS, *MEMORY], [*COSTS, *SLOW_PORT], [*COSTS, *SLOW_BANKS]],
    ids=["adr", "costs", "memory", "a slow TCM", "slow banks"],
)
def test_the_parts_of_the_path_add_up_to_the_time(tmp_path: Path, settings: list[str]) -> None:
    """All of it has a name: nothing is left as a wait in a command."""
    document, told = explained(**flags(tmp_path, *settings))
    check_path(document, told)
    parts = {part.part: part for part in told.parts}
    is_slow = "shared" in str(settings)
    assert {SPECIAL, "bytes through TCM" if is_slow else "PE_MATH, bytes", "PE_CPU, delays of kernels"} <= set(parts)
    assert parts["PE_CPU, delays of kernels"].ps == 40_000
    assert not [name for name in parts if name.startswith("waiting in ")]
    assert any("of TCM" in name for name in parts if name.startswith("sharing")) == is_slow
    if settings and settings[-1] in MEMORY:
        assert any(name.startswith("waiting for HBM: ") for name in parts), "rows that a stride opens"


@pytest.mark.parametrize("settings", [(), COSTS], ids=["adr", "costs"])
def test_twice_the_bandwidth_of_pe_math_saves_what_it_says(tmp_path: Path, settings: list[str]) -> None:
    _, told = explained(**flags(tmp_path, *settings))
    [change] = [each for each in told.what_if if each.name == BANDWIDTH]
    _, faster = explained(**flags(tmp_path, *settings, f"{BANDWIDTH}=128"))
    saved_ps = (told.until_ps - told.since_ps) - (faster.until_ps - faster.since_ps)
    assert change.saved_ps == saved_ps > 0
