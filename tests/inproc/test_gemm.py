"""Products in whole runs: the same digest everywhere, utilisation against bounds, and explanations that add up."""

import sys
from pathlib import Path
from typing import Any

import pytest
from explained import explained
from runs import run, script_file
from sweeps import some

from sipsim.chips.ahbm.gemm.engine import Operands
from sipsim.chips.ahbm.gemm.tiling import A, B, Product, Rectangle, SystolicArray

SCRIPTS = Path(__file__).parents[2] / "scripts"
GEMM = str(SCRIPTS / "benches" / "gemm.py")
SMALL = (GEMM, "--m", 128, "--k", 200, "--n", 100, "--cubes", 2, "--pes", 2)
WIDE = (GEMM, "--m", 64, "--k", 300, "--n", 300, "--cubes", 1, "--pes", 2)


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Any:
    """``scripts/bench gemm``."""
    monkeypatch.syspath_prepend(str(SCRIPTS))
    from bench import gemm

    yield gemm
    for name in ("benches.gemm", "benches"):
        sys.modules.pop(name, None)


def planted(monkeypatch: pytest.MonkeyPatch, operand: int) -> None:
    """A piece of an operand comes at the place of another."""
    put = Operands.put

    def wrong(self: Operands, number: int, place: Rectangle, data: bytes) -> None:
        put(self, number, place._replace(left=0) if number == operand else place, data)

    monkeypatch.setattr(Operands, "put", wrong)


@pytest.mark.parametrize("operand", [A, B])
def test_a_wrong_piece_is_found_by_the_second_pass(operand, monkeypatch):
    assert run("--sips", 1, *WIDE).outcome.error is None
    planted(monkeypatch, operand)
    error = run("--sips", 1, *WIDE).outcome.error
    assert error is not None
    assert "gemm" in error.message


LARGE = [(256, 2048, 256, "f16"), (256, 2048, 256, "f32"), (64, 2048, 256, "f16"), (64, 4096, 64, "f16")]


@pytest.mark.parametrize("shape", some(LARGE, LARGE[1], LARGE[3]))
def test_a_large_product_reaches_nine_tenths_of_the_peak(bench, shape):
    """Where the array allows 95 %; a little less for a narrow product, whose loads follow each other out of one slice
    of HBM."""
    row = bench.measured((*shape, "os"), 1)
    assert row["bound"] > 0.95
    assert row["peak"] >= (0.88 if shape == LARGE[3] else 0.9)


WHILE_OPERANDS_STREAM = ("cycles", "fill and drain", "fetch from TCM")
FEW = 0.03


def rows_told(bench: Any, shapes: Any) -> list[dict[str, Any]]:
    """Rows of the bench on one PE each, whose gap is told by the parts of the time that a line shows.

    Where the array bounds a product, what is missing is the time in which it does not work, no more and no less. Where
    memory does, each byte is loaded once, and what is missing is not more than the time of all that does not go on
    while operands stream in.
    """
    rows = [bench.measured(shape, 1) for shape in shapes]
    for row in rows:
        shown = {name: share for name, share in row["parts"].items() if share >= bench.LEAST_SHOWN}
        gap, is_of_array = 1 - row["reached"], row["bound_by"] == "the array"
        assert sum(row["parts"].values()) == pytest.approx(1)
        assert 0 < gap < 1
        if gap <= bench.MOST_MISSING:
            continue
        assert all(name in bench.shown_parts(row) for name in shown)
        idle = sum(share for name, share in shown.items() if name not in WHILE_OPERANDS_STREAM[: 2 + (not is_of_array)])
        if is_of_array:
            assert idle == pytest.approx(gap, abs=FEW), row
        else:
            assert idle >= gap - FEW, row
            assert row["loaded"] == 1
    return rows


@pytest.mark.parametrize(("step", "count"), [pytest.param(1, 20, marks=pytest.mark.slow), (4, 5)])
def test_what_is_missing_of_the_bound_is_told(bench, step, count):
    """Of every row of ``scripts/bench gemm``, or of every fourth one."""
    rows = rows_told(bench, bench.SHAPES[::step])
    assert len(rows) == count
    missing = [row["bound_by"] for row in rows if 1 - row["reached"] > bench.MOST_MISSING]
    assert len(missing) >= 0.4 * count
    assert set(missing) == {"the array", "memory"}


CUBE_OF_64 = Product(64, 64, 64)
BESIDE = """
from sipsim.chips.ahbm.host.layout import DPPolicy

def slow(t, tl):
    tl.delay(100_000)

def worker(rank, world_size, torch):
    a, b = (torch.ones((64, 64), dp=DPPolicy(cube="replicate", num_cubes=1)) for _ in range(2))
    a @ b
    if {is_beside}:
        torch.launch(slow, a, cubes=[0], pes=[1, 2, 3])
"""


def test_kernels_of_other_pes_do_not_count(tmp_path):
    """The array of one PE is busy for a part of that PE's kernels, whatever others do."""
    found = []
    for is_beside in (False, True):
        document = run("--sips", 1, script_file(tmp_path, BESIDE.format(is_beside=is_beside))).document
        launch, engines = document["launches"][0], document["whole_run"]["engines"]
        kernel_ns = launch["kernels_end_ns"] - launch["kernels_start_ns"]
        assert (launch["kernels"], engines["pes"]) == (1, 1)
        assert engines["busy"]["PE_GEMM"] == pytest.approx(SystolicArray(32, 32, "os").cycles(CUBE_OF_64) / kernel_ns)
        found.append(engines)
    assert found[0] == found[1]


def test_the_lines_below_the_table_and_the_result():
    done = run("--sips", 1, *SMALL)
    engines = done.document["whole_run"]["engines"]
    assert engines["pes"] == 4
    assert set(engines["busy"]) == {"PE_GEMM", "PE_MATH", "PE_FETCH_STORE"}
    assert 0 < engines["peak"] < engines["busy"]["PE_GEMM"] < 1
    assert sum(engines["commands"].values()) == pytest.approx(1)
    assert engines["commands"]["cycles"] > engines["commands"]["epilogue"] > 0


def test_a_run_without_a_product_tells_nothing_of_arrays():
    done = run("--sips", 1, "--bytes", 64)
    assert done.document["runs"][-1]["engines"] is None


def test_the_path_of_a_product_adds_up_and_its_parts_have_keys():
    _, told = explained(script=GEMM, script_args=["--m", 64, "--k", 200, "--n", 64, "--cubes", 1, "--pes", 2], sips=1)
    ends_ps = [told.since_ps, *(step.end_ps for step in told.steps)]
    assert [step.start_ps for step in told.steps] == ends_ps[:-1]
    (step,) = [step for step in told.steps if step.what == "gemm"]
    assert sum(part.ps for part in step.parts) == step.end_ps - step.start_ps
    keys = {part.part: part.keys for part in step.parts}
    assert keys["PE_GEMM: cycles"][0] == "pe_gemm.clock_GHz"
    assert keys["PE_GEMM: DMA in"][0] == "pe_dma.bandwidth_GBps"
    assert all(keys.values())


CHANGES = [
    ((64, 2048, 32, "f16"), "all bandwidths inside SIPs"),
    ((128, 512, 128, "f16"), "pe_gemm.clock_GHz"),
    ((64, 512, 64, "i8"), "pe_gemm.clock_GHz"),
]


@pytest.mark.parametrize(("product", "first"), CHANGES)
def test_the_change_that_is_named_first_saves_most(product, first):
    """Without the launch, whose times are not the product's, and with runs as judges."""
    plain = ["launch=null", "pe_mmu=null"]
    m, k, n, dtype = product
    flags = ["--m", m, "--k", k, "--n", n, "--dtype", dtype, "--cubes", 1, "--pes", 1]
    _, told = explained(reruns=4, script=GEMM, script_args=flags, sips=1, set=plain)
    by_run = {each.name: each.rerun_saved_ps for each in told.what_if if each.rerun_saved_ps is not None}
    assert len(by_run) >= 2
    assert told.what_if[0].name == max(by_run, key=by_run.__getitem__) == first
    assert told.what_if[0].saved_ps >= by_run[first] > 0, "told is what the way allows"


@pytest.mark.slow
@pytest.mark.parametrize("blocks", [(), (64,)], ids=["all", "one count"])
def test_most_of_what_can_be_hidden_is(blocks, monkeypatch):
    """Loads and additions of a kernel beside its product: see ``scripts/benches/overlap.py``."""
    monkeypatch.syspath_prepend(str(SCRIPTS / "benches"))
    import overlap as bench

    from launcher import api

    words = ["--blocks", *blocks] if blocks else []
    script = str(SCRIPTS / "benches" / "overlap.py")
    outcome = api.run(script, script_args=words, sips=1, engine="inproc", verify_data=False)
    assert outcome.error is None, outcome.error
    lines = [line.split() for line in outcome.output.splitlines() if "%" in line and line.lstrip()[0].isdigit()]
    allowed = {(*map(int, line[:4]),): float(line[9].rstrip("%")) for line in lines}
    counts = len(blocks or bench.BLOCKS)
    assert len(allowed) == 6 * counts
    with_slack = {shape: share for shape, share in allowed.items() if shape[:3] in (*bench.WITH_SLACK,)}
    assert len(with_slack) == 3 * counts
    assert min(with_slack.values()) >= 80
    assert allowed[32, 4096, 128, 64] >= 45, "the product's pieces and the kernel's loads take turns"
