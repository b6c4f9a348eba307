"""The benches of kernels run, with rows that no tile divides, and see an error that is above the bound of the type."""

import re
import shutil
from pathlib import Path

import pytest
from runs import run

BENCHES = Path(__file__).parents[2] / "scripts" / "benches"
SYSTEM = "--sips", 1, "--set", "sip.cube_mesh={w: 2, h: 1}"
SIZES = "--rows", 24, "--columns", 37, "--cubes", 2, "--pes", 2, "--tile", 4
WRONG = {
    "softmax": ("1 / tl.sum", "1 / tl.max"),
    "layer_norm": ("x - tl.sum", "x + tl.sum"),
    "attention": ("(1 / math", "(2 / math"),
}
TWO = "--sips", 2, "--set", "sip.cube_mesh={w: 2, h: 1}"
MLP = "--tokens", 6, "--hidden", 10, "--ffn", 20, "--cubes", 2, "--pes", 2


def names() -> list[str]:
    """The benches over rows."""
    return sorted(path.stem for path in BENCHES.glob("*.py") if "import measured_ns" in path.read_text())


@pytest.mark.parametrize("dtype", ["f32", "bf16", "f16"])
@pytest.mark.parametrize("name", names())
def test_a_bench_is_right(capsys: pytest.CaptureFixture[str], name: str, dtype: str) -> None:
    done = run(*SYSTEM, BENCHES / f"{name}.py", *SIZES, "--dtype", dtype)
    assert done.outcome.error is None
    said = capsys.readouterr().out
    pattern = rf"{name.replace('_', ' ')} 24 x 37 {dtype} on 4 PEs: [\d.]+ us, [\d.]+ GB/s, largest error \S+ of \S+\n"
    assert re.fullmatch(pattern, said)


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_kernel_is_seen(tmp_path: Path, name: str) -> None:
    shutil.copytree(BENCHES, tmp_path, dirs_exist_ok=True)
    path = tmp_path / f"{name}.py"
    source = path.read_text()
    assert source.count(WRONG[name][0]) == 1
    path.write_text(source.replace(*WRONG[name]))
    error = run(*SYSTEM, path, *SIZES).outcome.error
    assert error is not None
    assert "is above" in error.message


def test_rows_that_cannot_be_shared(tmp_path: Path) -> None:
    error = run(*SYSTEM, BENCHES / "softmax.py", *SIZES, "--rows", 25).outcome.error
    assert error is not None
    assert "25 rows cannot be shared equally by 4 PEs" in error.message


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_a_layer_in_tensor_parallel(capsys: pytest.CaptureFixture[str], dtype: str) -> None:
    done = run(*TWO, BENCHES / "mlp.py", *MLP, "--dtype", dtype)
    assert done.outcome.error is None
    pattern = (
        rf"MLP of 6 tokens, 10 x 20 {dtype}, on 2 SIPs: products \S+ us, all-reduce \S+ us, largest error \S+ of \S+\n"
    )
    assert re.fullmatch(pattern, capsys.readouterr().out)


def test_a_wrong_layer_is_seen(tmp_path: Path) -> None:
    shutil.copytree(BENCHES, tmp_path, dirs_exist_ok=True)
    path = tmp_path / "mlp.py"
    path.write_text(path.read_text().replace('epilogue="gelu"', 'epilogue="relu"'))
    error = run(*TWO, path, *MLP).outcome.error
    assert error is not None
    assert "is above" in error.message


LAYER = (
    *("--sips", 4, "--set", "sip.cube_mesh={w: 1, h: 1}", "--set", "cube.pes=3"),
    *("--algorithm", "ring", BENCHES / "layer.py", "--length", 4, "--chunks", 2, "--comm", 1),
)


def test_a_layer_that_overlaps(capsys: pytest.CaptureFixture[str]) -> None:
    """The overlapped run takes the critical path and what the lines below it say."""
    done = run(*LAYER)
    assert done.outcome.error is None
    told = {
        line[:36].strip(): float(line[36:].removesuffix(" us").removesuffix("%"))
        for line in capsys.readouterr().out.splitlines()
        if line.endswith((" us", "%"))
    }
    parts = told["products alone"] + told["all-reduces alone"]
    assert told["one after the other"] == pytest.approx(parts, abs=0.002)
    assert told["hidden"] == pytest.approx(parts - told["overlapped"], abs=0.002)
    assert 0 < told["hidden"] < parts
    beyond = told["allowed by the dependences"] - told["hidden"]
    rest = ("products slower beside all-reduces", "all-reduces slower beside products", "between steps")
    assert sum(told[name] for name in (*rest, "another path than the critical one")) == pytest.approx(beyond, abs=0.005)


@pytest.mark.slow
@pytest.mark.parametrize(
    "wrong",
    [("(1 / math", "(2 / math"), ("tl.exp(-g) + 1", "tl.exp(-g) + 2"), ("self.y[chunk]) for", "self.x[chunk]) for")],
)
def test_a_wrong_layer_that_overlaps_is_seen(tmp_path: Path, wrong: tuple[str, str]) -> None:
    path = tmp_path / "layer.py"
    source = (BENCHES / "layer.py").read_text()
    assert source.count(wrong[0]) == 1
    path.write_text(source.replace(*wrong))
    error = run(*(path if word == BENCHES / "layer.py" else word for word in LAYER)).outcome.error
    assert error is not None
    assert "is above" in error.message
