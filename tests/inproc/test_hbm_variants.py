"""Variants ``hbm3``, ``hbm3e`` and ``hbm4``: eight PEs get the bandwidth that the stack publishes, less refresh."""

import json
from pathlib import Path
from typing import Any

import pytest
from runs import run, script_file

from sipsim.chips.ahbm.memory.presets import presets
from sipsim.config.document import SECTION_FILES, dotted, value_at
from sipsim.config.load import default_dir, variants
from sipsim.config.yaml import read_mapping

PUBLISHED_GBPS = {"hbm3": 819.2, "hbm3e": 1228.8, "hbm4": 2048.0}
"""JESD238, HBM3E at 9.6 Gb/s a pin, JESD270-4."""
LEAST_PART = 0.93
MIB = 1 << 20
PES, PIECE, PIECES = 8, MIB // 2, 16
STREAM = f"""
from sipsim.chips.ahbm.address import PhysAddr
from sipsim.chips.ahbm.tl.values import Pointer
from sipsim.core.dtypes import DTYPES

def kernel(tl):
    '''Its slice from the beginning, two pieces ahead of what it takes.'''
    me, ahead = tl.program_id(0), []
    for number in range({PIECES}):
        piece = PhysAddr(0, 0, me, "hbm", number * {PIECE}).encode()
        ahead.append(tl.load_async(Pointer(piece, DTYPES["i8"]), {PIECE}))
        if len(ahead) > 2:
            tl.wait(ahead.pop(0))
    for each in ahead:
        tl.wait(each)

def worker(rank, world_size, torch):
    torch.launch(kernel, cubes=[0], pes=range({PES}))
"""
ROOT = Path(__file__).parents[2]
GEMM = ROOT / "scripts" / "benches" / "gemm.py"
ONE_CUBE = ("--sips", 1, "--set", "sip.cube_mesh={w: 1, h: 1}")


def kernels_ns(done: Any) -> float:
    assert done.outcome.error is None, done.outcome.error
    [launch] = done.document["launches"]
    return float(launch["kernels_end_ns"] - launch["kernels_start_ns"])


def flags(variant: str) -> tuple[object, ...]:
    return ("--variant", variant, *ONE_CUBE) if variant else ONE_CUBE


def streamed_GBps(folder: Path, variant: str) -> float:
    done = run(*flags(variant), "--no-verify-data", script_file(folder, STREAM))
    return PES * PIECES * PIECE / kernels_ns(done)


def of_variant(name: str) -> dict[str, Any]:
    return read_mapping(variants()[name])


@pytest.mark.parametrize("variant", PUBLISHED_GBPS)
def test_pes_that_stream_their_slices_get_the_published_rate(tmp_path: Path, variant: str) -> None:
    """Less refresh: for tRP + tRFC + tRCD of each tREFI no data pass."""
    device = presets()[of_variant(variant)["hbm"]["params"]["preset"]]
    timings = device.timings
    open_part = 1 - (timings.rp + timings.rfc + timings.rcd_read) / timings.refi
    published = PUBLISHED_GBPS[variant]
    assert device.stack_GBps == pytest.approx(published)
    got = streamed_GBps(tmp_path, variant)
    assert LEAST_PART <= got / (published * open_part) <= 1.02


def test_the_default_machine_gives_what_its_ports_let_through(tmp_path: Path) -> None:
    """ADR-0023 D19 and D21: 64 GB/s a PE, whatever the device."""
    assert 500 < streamed_GBps(tmp_path, "") < 512


def test_the_time_of_a_matrix_times_a_vector_follows_the_variant() -> None:
    """B, 4 MiB of f16 on each of two PEs, is read once: the bandwidths of the stacks decide, within 15 %."""
    sizes = ("--m", 2, "--k", 2048, "--n", 1024, "--cubes", 1, "--pes", 2)
    took_ns = {each: kernels_ns(run(*flags(each), "--no-verify-data", GEMM, *sizes)) for each in ("", *PUBLISHED_GBPS)}
    assert took_ns[""] > took_ns["hbm3"]
    for variant, published in PUBLISHED_GBPS.items():
        slower = took_ns["hbm3"] / took_ns[variant]
        assert slower == pytest.approx(published / PUBLISHED_GBPS["hbm3"], rel=0.15), json.dumps(took_ns)


def test_the_page_has_what_the_variants_set() -> None:
    """Each key of each variant, with the default's value beside it."""
    lines = (ROOT / "docs" / "hbm.md").read_text().splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("| `")]
    page = {row[0].split("`")[1]: row[1:] for row in rows}
    shipped = {key: value for stem in SECTION_FILES for key, value in read_mapping(file_of(stem)).items()}
    columns = [shipped, *map(of_variant, PUBLISHED_GBPS)]
    set_there = {dotted(path) for each in columns[1:] for path in leaves(each)}
    assert set(page) == set_there
    for key, cells in page.items():
        path = tuple(key.split("."))
        default, *others = (value_at(each, path) for each in columns)
        assert cells == [str(default if each is None else each) for each in (default, *others)], key


def leaves(value: Any, path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    if not isinstance(value, dict):
        return [path]
    return [each for key, item in value.items() for each in leaves(item, (*path, key))]


def file_of(stem: str) -> Path:
    return default_dir() / f"{stem}.yaml"
