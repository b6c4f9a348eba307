"""Products in whole runs: the same digest everywhere, utilisation against bounds, and explanations that add up."""

import sys
from pathlib import Path
from typing import Any

import pytest
from explained import explained
from launch import launched
from runs import run
from shuffled_mail import ShuffledInprocMail

from sipsim.pe.gemm.operands import Operands
from sipsim.pe.gemm.tiling import A, B, Rectangle

SCRIPTS = Path(__file__).parents[2] / "scripts"
GEMM = str(SCRIPTS / "benches" / "gemm.py")
SMALL = (GEMM, 128, 200, 100, "f16", 2, 2)

WIDE = (GEMM, 64, 300, 300, "f16", 1, 2)

pytestmark = pytest.mark.default_costs


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Any:
    """``scripts/bench_gemm.py``."""
    monkeypatch.syspath_prepend(str(SCRIPTS))
    import bench_gemm

    yield bench_gemm
    for name in ("bench_gemm", "benches.gemm", "benches"):
        sys.modules.pop(name, None)


@pytest.mark.processes
def test_the_same_digest_whatever_the_mail_and_the_engine():
    one = run("--sips", 1, "--check-invariants", *SMALL)
    assert one.outcome.error is None, one.outcome.error
    assert run("--sips", 1, *SMALL, office=ShuffledInprocMail(3)).document["digest"] == one.document["digest"]
    assert launched("--sips", 1, "--engine", "local", *SMALL).digest == one.document["digest"]


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


@pytest.mark.parametrize("shape", LARGE)
def test_a_large_product_reaches_nine_tenths_of_the_peak(bench, shape):
    """Where the array allows 95 %."""
    row = bench.measured((*shape, "os"), 1)
    assert row["bound"] > 0.95
    assert row["peak"] >= 0.9


SHAPES = [
    (64, 64, 64, "f16", "os"),
    (8, 1024, 256, "f16", "os"),
    (64, 512, 64, "f32", "os"),
    (256, 128, 64, "f16", "ws"),
    (64, 128, 256, "bf16", "is"),
]


@pytest.mark.parametrize("shape", SHAPES)
def test_what_is_missing_of_the_bound_is_told(bench, shape):
    """The parts that a run tells fill its kernels' time. Where the array bounds it, those that are not the array's are
    the whole gap."""
    row = bench.measured(shape, 2)
    parts = row["parts"]
    assert sum(parts.values()) == pytest.approx(1)
    assert 0 < row["reached"] < 1
    if row["bound_by"] == "the array":
        of_array = parts["cycles"] + parts["fill and drain"]
        assert of_array == pytest.approx(row["reached"], abs=0.002)


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
    assert "engines" not in done.document["runs"][-1]


def test_the_path_of_a_product_adds_up_and_its_parts_have_keys():
    _, told = explained(script=GEMM, script_args=[64, 200, 64, "f16", 1, 2], sips=1)
    ends_ps = [told.since_ps, *(step.end_ps for step in told.steps)]
    assert [step.start_ps for step in told.steps] == ends_ps[:-1]
    (step,) = [step for step in told.steps if step.what == "gemm"]
    assert sum(part.ps for part in step.parts) == step.end_ps - step.start_ps
    keys = {part.part: part.keys for part in step.parts}
    assert keys["PE_GEMM: cycles"][0] == "pe_gemm.clock_GHz"
    assert keys["PE_GEMM: DMA in"][0] == "pe_dma.bandwidth_GBps"
    assert all(keys.values())


CHANGES = [
    ((64, 2048, 32, "f16", 1, 1), "all bandwidths inside SIPs"),
    ((128, 512, 128, "f16", 1, 1), "pe_gemm.clock_GHz"),
    ((64, 512, 64, "i8", 1, 1), "pe_gemm.clock_GHz"),
]


@pytest.mark.parametrize(("product", "first"), CHANGES)
def test_the_change_that_is_named_first_saves_most(product, first):
    """Without the launch, whose times are not the product's, and with runs as judges."""
    plain = ["launch=null", "pe_mmu=null"]
    _, told = explained(reruns=4, script=GEMM, script_args=product, sips=1, set=plain)
    by_run = {each.name: each.rerun_saved_ps for each in told.what_if if each.rerun_saved_ps is not None}
    assert len(by_run) >= 2
    assert told.what_if[0].name == max(by_run, key=by_run.__getitem__) == first
    assert told.what_if[0].saved_ps >= by_run[first] > 0, "told is what the way allows"


def test_most_of_what_can_be_hidden_is(monkeypatch):
    """Loads and additions of a kernel beside its product: see ``scripts/benches/overlap.py``."""
    monkeypatch.syspath_prepend(str(SCRIPTS / "benches"))
    import overlap as bench

    from launcher import api

    outcome = api.run(str(SCRIPTS / "benches" / "overlap.py"), sips=1, engine="inproc", verify_data=False)
    assert outcome.error is None, outcome.error
    lines = [line.split() for line in outcome.output.splitlines() if "%" in line and line.lstrip()[0].isdigit()]
    allowed = {(*map(int, line[:4]),): float(line[9].rstrip("%")) for line in lines}
    assert len(allowed) == 18
    with_slack = {shape: share for shape, share in allowed.items() if shape[:3] in (*bench.WITH_SLACK,)}
    assert len(with_slack) == 9
    assert min(with_slack.values()) >= 80
    assert allowed[32, 4096, 128, 64] >= 50, "the product's pieces and the kernel's loads take turns"
