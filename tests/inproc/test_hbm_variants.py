"""Variants ``hbm3``, ``hbm3e`` and ``hbm4``: eight PEs get the bandwidth that the stack publishes, less refresh."""

import json
from pathlib import Path
from typing import Any

import pytest
from runs import Run, run, script_file

from launcher.commands.launch import main
from sipsim.chips.ahbm.memory.presets import presets
from sipsim.config.check import dotted, value_at
from sipsim.config.load import SECTION_FILES, default_dir, variants
from sipsim.config.yaml import read_mapping

PUBLISHED_GBPS = {"hbm3": 819.2, "hbm3e": 1228.8, "hbm4": 2048.0}
"""JESD238, HBM3E at 9.6 Gb/s a pin, JESD270-4."""
LEAST_PART = 0.93
MIB = 1 << 20
PES, PIECE, PIECES = 8, MIB // 2, 16
STREAM = f"""
import sys
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
    torch.launch(kernel, cubes=[0], pes=range(int(sys.argv[1])))
"""
ROOT = Path(__file__).parents[2]
CHANNELS = "hbm.params.channels"
GEMM = ROOT / "scripts" / "benches" / "gemm.py"
ONE_CUBE = ("--sips", 1, "--set", "sip.cube_mesh={w: 1, h: 1}")


def kernels_ns(done: Run) -> float:
    assert done.outcome.error is None, done.outcome.error
    [launch] = done.document["launches"]
    return float(launch["kernels_end_ns"] - launch["kernels_start_ns"])


def flags(variant: str) -> tuple[object, ...]:
    return ("--variant", variant, *ONE_CUBE) if variant else ONE_CUBE


def streamed(folder: Path, variant: str, pes: int = PES, *settings: str) -> Run:
    sets = [word for each in settings for word in ("--set", each)]
    return run(*flags(variant), *sets, "--no-verify-data", script_file(folder, STREAM), pes)


def streamed_GBps(folder: Path, variant: str) -> float:
    return PES * PIECES * PIECE / kernels_ns(streamed(folder, variant))


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


WIDE = "router.bandwidth_GBps=512", "pe_dma.bandwidth_GBps=512", "hbm.bandwidth_GBps=512"
PORTS = ("pe_dma.bandwidth_GBps", "router.bandwidth_GBps", "hbm.bandwidth_GBps")
BOUND: list[tuple[tuple[str, ...], int, tuple[str, ...], str]] = [
    ((), 8, PORTS, "8 ports of PE_DMA"),
    ((), 2, PORTS, "2 ports of PE_DMA"),
    (("pe_dma.bandwidth_GBps=512",), 8, PORTS[1:], "8 routers"),
    ((*WIDE[:2],), 8, PORTS[2:], "8 ports of the HBM controller"),
    (("tcm.params.bandwidth_GBps=50",), 8, ("tcm.params.bandwidth_GBps",), "8 ports of TCMs"),
    ((*WIDE, "tcm.params.bandwidth_GBps=512", "hbm.params.preset=hbm4_8000"), 8, (CHANNELS,), "16 of 32 channels"),
    ((*WIDE, "tcm.params.bandwidth_GBps=512", "cube.pes=4"), 4, (CHANNELS,), "8 of 16 channels"),
]
"""Settings, PEs that stream, and what binds them: the keys, and the text."""
EVERY = (*PORTS, "tcm.params.bandwidth_GBps", CHANNELS)


@pytest.mark.parametrize(("settings", "pes", "keys", "text"), BOUND)
def test_what_is_named_binds_and_nothing_else_does(
    tmp_path: Path, settings: tuple[str, ...], pes: int, keys: tuple[str, ...], text: str
) -> None:
    """Twice of each named key gives more; twice of every other one does not."""
    done = streamed(tmp_path, "", pes, *settings)
    stack = done.document["whole_run"]["stack"]
    assert (tuple(stack["keys"]), stack["bound"]) == (keys, text)
    assert 0.7 * stack["bound_GBps"] <= stack["GBps"] <= stack["bound_GBps"]
    before_ns, config = kernels_ns(done), done.document["config"]["components"]

    def with_twice(some: tuple[str, ...]) -> float:
        twice = [f"{key}={2 * value_at(config, tuple(key.split('.')))}" for key in some]
        return kernels_ns(streamed(tmp_path, "", pes, *settings, *twice))

    assert with_twice(keys) < 0.9 * before_ns
    assert with_twice(tuple(key for key in EVERY if key not in keys)) == pytest.approx(before_ns, rel=0.02)


CAUTIONS: list[tuple[str, tuple[str, ...], str]] = [
    ("", (), ""),
    ("", ("pe_dma.bandwidth_GBps=32",), ""),
    ("", ("hbm.params.preset=hbm3e_9600",), "512 of 1229 GB/s"),
    ("", ("hbm.params.preset=hbm4_8000",), "512 of 2048 GB/s"),
    ("", ("hbm.kind=null",), ""),
    *((each, (), "") for each in ("hbm3", "hbm3e", "hbm4", "ideal", "adr")),
    ("hbm4", ("router.bandwidth_GBps=128",), "1024 of 2048 GB/s"),
]


@pytest.mark.parametrize(("variant", "settings", "said"), CAUTIONS)
def test_a_device_that_cannot_give_its_rate_is_told_before_the_run(
    capsys: pytest.CaptureFixture[str], variant: str, settings: tuple[str, ...], said: str
) -> None:
    """A line where the user has chosen the device; the run is not refused."""
    sets = [word for each in settings for word in ("--set", each)]
    assert main([*(("--variant", variant) if variant else ()), *sets, "--sips", "1", "--bytes", "1K", "--dry-run"]) == 0
    lines = [line for line in capsys.readouterr().err.splitlines() if "GB/s" in line]
    assert len(lines) == bool(said)
    if said:
        assert said in lines[0]
        assert f"hbm.params.preset = {presets_of(variant, settings)}" in lines[0]
        assert ("--variant hbm" in lines[0]) == (not variant)


def presets_of(variant: str, settings: tuple[str, ...]) -> str:
    chosen = [each.partition("=")[2] for each in settings if each.startswith("hbm.params.preset")]
    return chosen[0] if chosen else str(of_variant(variant)["hbm"]["params"]["preset"])


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
