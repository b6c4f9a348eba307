"""PE_MATH: values of every operation against NumPy, and times by hand; blocks; delays."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hardware import Bench, hbm, pair_bench, tcm
from pair_times import run_pair

from sipsim.chips.ahbm.tl.language import TL
from sipsim.chips.ahbm.tl.values import TensorHandle
from sipsim.core.arithmetic.operations import cast
from sipsim.core.dtypes import DTYPES

Array = np.ndarray[Any, Any]
FLOATS, ALL = ("f16", "bf16", "f32"), ("f16", "bf16", "f32", "i32", "i8")
SPECIAL = {"pe_math.special_factor": 4}


def values(dtype: str, shape: tuple[int, ...], seed: int = 0) -> Array:
    """Values of both signs that the type holds, none of them 0."""
    made = np.random.default_rng(seed + math.prod(shape)).uniform(0.25, 7, shape)
    made *= np.where(np.arange(math.prod(shape)).reshape(shape) % 3, 1, -1)
    return made.astype(DTYPES[dtype].numpy) if dtype in FLOATS else np.rint(made * 15).astype(DTYPES[dtype].numpy)


def computed(kernel: Callable[..., TensorHandle], *arrays: Array, bench: Bench | None = None) -> TensorHandle:
    """What a kernel of ``tl`` and handles with these values returns."""
    bench, found = bench or pair_bench(), []
    offsets = [at << 16 for at in range(len(arrays))]
    for offset, array in zip(offsets, arrays, strict=True):
        bench.sip.memory.write(tcm(0, offset), array.tobytes())
    names = {each.numpy: name for name, each in DTYPES.items()}

    def body(tl: TL) -> None:
        handles = [
            tl.load(tcm(0, offset), array.shape, names[array.dtype])
            for offset, array in zip(offsets, arrays, strict=True)
        ]
        found.append(kernel(tl, *handles))

    run_pair(bench, body)
    [handle] = found
    return handle


def same(handle: TensorHandle, dtype: str, expected: Array) -> None:
    assert (handle.dtype.name, handle.shape) == (dtype, expected.shape)
    assert handle.array.tobytes() == expected.astype(DTYPES[dtype].numpy).tobytes()


def wide(*arrays: Any) -> list[Any]:
    """Floats as f32, in which they are computed."""
    return [
        each.astype(np.float32) if isinstance(each, np.ndarray) and each.dtype.kind != "i" else each for each in arrays
    ]


PAIRS: dict[str, tuple[Callable[..., Any], Callable[..., Any], tuple[str, ...]]] = {
    "+": (lambda _, a, b: a + b, lambda a, b: a + b, ALL),
    "tl.add": (lambda tl, a, b: tl.add(a, b), lambda a, b: a + b, ALL),
    "-": (lambda _, a, b: a - b, lambda a, b: a - b, ALL),
    "*": (lambda _, a, b: a * b, lambda a, b: a * b, ALL),
    "/": (lambda _, a, b: a / b, lambda a, b: a / b, FLOATS),
    "maximum": (lambda tl, a, b: tl.maximum(a, b), np.maximum, ALL),
    "minimum": (lambda tl, a, b: tl.minimum(a, b), np.minimum, ALL),
    "<": (lambda _, a, b: a < b, lambda a, b: a < b, ALL),
    "<=": (lambda _, a, b: a <= b, lambda a, b: a <= b, ALL),
    ">": (lambda _, a, b: a > b, lambda a, b: a > b, ALL),
    ">=": (lambda _, a, b: a >= b, lambda a, b: a >= b, ALL),
    "==": (lambda _, a, b: a == b, lambda a, b: a == b, ALL),
    "!=": (lambda _, a, b: a != b, lambda a, b: a != b, ALL),
}
COMPARISONS = ("<", "<=", ">", ">=", "==", "!=")
SHAPES = [((16,), (16,)), ((2, 3), (2, 3)), ((4, 1), (5,)), ((3,), (2, 1, 3))]


@pytest.mark.parametrize("shapes", SHAPES, ids=str)
@pytest.mark.parametrize("word", PAIRS)
def test_two_operands(word: str, shapes: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    kernel, numpy, dtypes = PAIRS[word]
    for dtype in dtypes:
        a, b = values(dtype, shapes[0]), values(dtype, shapes[1], 1)
        if shapes[0] == shapes[1]:
            b.flat[0] = a.flat[0]
        with np.errstate(over="ignore"):
            expected = np.asarray(numpy(*wide(a, b)))
        same(computed(kernel, a, b), "i8" if word in COMPARISONS else dtype, expected)


@pytest.mark.parametrize("word", PAIRS)
def test_a_handle_and_a_number(word: str) -> None:
    """On either side; a number is rounded to the type of the handle before all else."""
    kernel, numpy, dtypes = PAIRS[word]
    for dtype in dtypes:
        a, number = values(dtype, (7,)), 0.1 if dtype in FLOATS else 3
        rounded = np.array(number, DTYPES[dtype].numpy)
        to = "i8" if word in COMPARISONS else dtype
        with np.errstate(over="ignore"):
            right, left = numpy(*wide(a, rounded)), numpy(*wide(rounded, a))
        same(computed(lambda tl, x: kernel(tl, x, number), a), to, right)  # noqa: B023
        same(computed(lambda tl, x: kernel(tl, number, x), a), to, left)  # noqa: B023


def in_f64(function: Callable[[Array], Array]) -> Callable[[Array], Array]:
    return lambda x: function(x.astype(np.float64)).astype(np.float32)


def gelu(x: Array) -> Array:
    """By its tanh form, in f64."""
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


SINGLES: dict[str, tuple[Callable[..., Any], Callable[[Array], Array], tuple[str, ...]]] = {
    "neg": (lambda _, a: -a, np.negative, ALL),
    "tl.abs": (lambda tl, a: tl.abs(a), np.absolute, ALL),
    "abs": (lambda _, a: abs(a), np.absolute, ALL),
    "relu": (lambda tl, a: tl.relu(a), lambda x: np.maximum(x, 0), ALL),
    "exp": (lambda tl, a: tl.exp(a), in_f64(np.exp), FLOATS),
    "log": (lambda tl, a: tl.log(abs(a)), in_f64(lambda x: np.log(np.abs(x))), FLOATS),
    "sqrt": (lambda tl, a: tl.sqrt(abs(a)), lambda x: np.sqrt(np.abs(x)), FLOATS),
    "rsqrt": (lambda tl, a: tl.rsqrt(abs(a)), in_f64(lambda x: 1 / np.sqrt(np.abs(x))), FLOATS),
}


@pytest.mark.parametrize("word", SINGLES)
def test_one_operand(word: str) -> None:
    kernel, numpy, dtypes = SINGLES[word]
    for dtype in dtypes:
        for shape in ((33,), (4, 5)):
            a = values(dtype, shape)
            same(computed(kernel, a), dtype, numpy(*wide(a)))


@pytest.mark.parametrize(("dtype", "bound"), [("f32", 2e-7), ("f16", 2**-11), ("bf16", 2**-8)])
def test_gelu(dtype: str, bound: float) -> None:
    """Within a bound of the f64 value, relative to the larger of that and 1: cancellation for negative values."""
    x = np.linspace(-8, 8, 101).astype(DTYPES[dtype].numpy)
    found = computed(lambda tl, a: tl.gelu(a), x).array.astype(np.float64)
    exact = gelu(x.astype(np.float64))
    assert (np.abs(found - exact) <= bound * np.maximum(np.abs(exact), 1)).all()


@pytest.mark.parametrize("dtype", ALL)
def test_where(dtype: str) -> None:
    a, b = values(dtype, (4, 5)), values(dtype, (5,), 1)
    number = np.array(2, DTYPES[dtype].numpy)
    same(computed(lambda tl, x, y: tl.where(x < y, x, y), a, b), dtype, np.where(np.less(*wide(a, b)), a, b))
    same(computed(lambda tl, x: tl.where(x > 0, x, 2), a), dtype, np.where(a > 0, a, number))
    same(computed(lambda tl, x: tl.where(x > 0, 1, 2), a), "i32", np.where(a > 0, 1, 2))
    same(computed(lambda tl, x: tl.where(x > 0, 1.5, 2), a), "f32", np.where(a > 0, 1.5, 2.0))


def tree(join: Callable[[Array, Array], Array], x: Array, axis: int) -> Array:
    """The documented order, written down again."""
    parts = [np.take(x, [i], axis) for i in range(x.shape[axis])]
    while len(parts) > 1:
        half = -(-len(parts) // 2)
        parts = [join(parts[i], parts[half + i]) if half + i < len(parts) else parts[i] for i in range(half)]
    return parts[0]


@pytest.mark.parametrize("word", ["sum", "max", "min"])
@pytest.mark.parametrize("dtype", ALL)
def test_reductions(word: str, dtype: str) -> None:
    join = {"sum": np.add, "max": np.maximum, "min": np.minimum}[word]
    to = dtype if word != "sum" else "f32" if dtype in FLOATS else "i32"
    x = values(dtype, (5, 7))
    [wider] = wide(x) if dtype in FLOATS else [x.astype(np.int32)]
    for axis, positive in ((0, 0), (1, 1), (-1, 1)):
        expected = tree(join, wider, positive)
        kept = computed(lambda tl, a: getattr(tl, word)(a, axis, keep_dims=True), x)  # noqa: B023
        same(kept, to, expected)
        same(computed(lambda tl, a: getattr(tl, word)(a, axis=axis), x), to, np.squeeze(expected, positive))  # noqa: B023
    whole = tree(join, wider.reshape(-1), 0)
    same(computed(lambda tl, a: getattr(tl, word)(a), x), to, whole)
    same(computed(lambda tl, a: getattr(tl, word)(a, keep_dims=True), x), to, whole.reshape(1, 1))
    same(computed(lambda tl, a: getattr(tl, word)(a, 0), x[0].copy()), to, tree(join, wider[0], 0))


@pytest.mark.parametrize("dtype", ALL)
@pytest.mark.parametrize("to", ALL)
def test_casts(dtype: str, to: str) -> None:
    x = values(dtype, (4, 5)) * np.array(19, DTYPES[dtype].numpy)
    expected = cast(x, DTYPES[to])
    same(computed(lambda tl, a: tl.cast(a, to), x), to, expected)
    same(computed(lambda _, a: a.to(to), x), to, expected)


MADE: dict[str, tuple[Callable[[TL], TensorHandle], Array, str]] = {
    "zeros": (lambda tl: tl.zeros((2, 3), "f32"), np.zeros((2, 3)), "f32"),
    "full": (lambda tl: tl.full(4, 0.1, "bf16"), np.full(4, 0.1), "bf16"),
    "arange": (lambda tl: tl.arange(3, 7), np.arange(3, 7), "i32"),
    "arange of floats": (lambda tl: tl.arange(-3, 7, "f16"), np.arange(-3, 7), "f16"),
    "negative": (lambda tl: tl.full((1, 2), -128, "i8"), np.full((1, 2), -128), "i8"),
    "infinite": (lambda tl: tl.full(2, -math.inf, "f16"), np.full(2, -np.inf), "f16"),
}


@pytest.mark.parametrize("word", MADE)
def test_values_that_are_made(word: str) -> None:
    kernel, expected, dtype = MADE[word]
    same(computed(kernel), dtype, expected)


SHAPED: dict[str, tuple[Callable[..., TensorHandle], Callable[[Array], Array]]] = {
    "trans": (lambda tl, a: tl.trans(a), lambda x: x.T),
    "reshape": (lambda tl, a: tl.reshape(a, (4, 3)), lambda x: x.reshape(4, 3)),
    "flat": (lambda tl, a: tl.reshape(a, 12), lambda x: x.reshape(12)),
    "column": (lambda _, a: a[:, None], lambda x: x[:, None]),
    "row": (lambda _, a: a[None], lambda x: x[None]),
    "last": (lambda _, a: a[:, :, None], lambda x: x[:, :, None]),
    "broadcast_to": (
        lambda tl, a: tl.broadcast_to(a[:, None], (3, 5, 4)),
        lambda x: np.broadcast_to(x[:, None], (3, 5, 4)),
    ),
}


@pytest.mark.parametrize("word", SHAPED)
def test_shapes(word: str) -> None:
    kernel, numpy = SHAPED[word]
    x = values("f32", (3, 4))
    same(computed(kernel, x), "f32", numpy(x))


# --- times -------------------------------------------------------------------------------------------------------

KIB = 1024
TIMES: dict[str, tuple[Callable[..., Any], int, int]] = {
    # On 4 KiB of f32 in 32 rows: bytes at 64 GB/s, and how often.
    "add": (lambda _, x: x + x, 4 * KIB, 1),
    "number": (lambda _, x: x * 2, 4 * KIB, 1),
    "compare": (lambda _, x: x > 0, 4 * KIB, 1),
    "exp": (lambda tl, x: tl.exp(x), 4 * KIB, 4),
    "divide": (lambda _, x: 1 / x, 4 * KIB, 4),
    "gelu": (lambda tl, x: tl.gelu(x), 4 * KIB, 12),
    "sum": (lambda tl, x: tl.sum(x, 1), 4 * KIB, 1),
    "sum of all": (lambda tl, x: tl.sum(x), 4 * KIB, 1),
    "cast": (lambda tl, x: tl.cast(x, "f16"), 4 * KIB, 1),
    "trans": (lambda tl, x: tl.trans(x), 4 * KIB, 1),
    "broadcast_to": (lambda tl, x: tl.broadcast_to(x[None], (2, 32, 32)), 8 * KIB, 1),
    "broadcast": (lambda _, x: x[None] + x[:, None], 32 * 4 * KIB, 1),
    "zeros": (lambda tl, _: tl.zeros(4 * KIB, "f16"), 8 * KIB, 1),
    "arange": (lambda tl, _: tl.arange(0, KIB), 4 * KIB, 1),
}


@pytest.mark.parametrize("word", TIMES)
def test_times(word: str) -> None:
    """A nanosecond to start, and a nanosecond for 64 bytes."""
    kernel, nbytes, factor = TIMES[word]
    bench = pair_bench(SPECIAL)
    computed(kernel, np.ones((32, 32), np.float32), bench=bench)
    last = bench.sip.oplog.records[-1]
    assert last[0] in ("math", "reduce", "cast", "rearrange", "make")
    assert last[2] - last[1] == 1_000 + nbytes * factor * 1_000 // 64


def test_what_takes_no_time() -> None:
    """And a delay, which keeps the kernel and follows what it has issued: a store, which goes on meanwhile."""
    bench = pair_bench({"pe_cpu.issue_ns": 15})
    seen: list[int] = []

    def kernel(tl: TL) -> None:
        x = tl.full((4, 4), 1, "f32")
        start_ps = bench.engine.now_ps
        x[:, None], x[None], tl.reshape(x, 16), tl.cast(x, "f32"), tl.broadcast_to(x, (4, 4)), tl.cdiv(7, 2)
        seen.append(bench.engine.now_ps - start_ps)
        tl.store_async(tcm(0, 0), x)
        tl.delay(2.5)
        seen.append(bench.engine.now_ps - start_ps)

    run_pair(bench, kernel)
    assert seen == [0, 15_000 + 2_500]
    [record] = bench.records("delay")
    assert record.end_ps - record.start_ps == record.fields["ps"] == 2_500
    assert TL.cdiv(7, 2) == 4


# --- blocks ------------------------------------------------------------------------------------------------------


@pytest.mark.ideal
def test_blocks_are_loaded_and_stored() -> None:
    """Rows of 3 elements, 10 apart; and the time of 24 B in one piece, where no memory knows addresses."""
    bench = pair_bench()
    matrix = np.arange(60, dtype="<f4").reshape(6, 10)
    bench.sip.memory.write(hbm(0, 0), matrix.tobytes())

    def kernel(tl: TL) -> None:
        block = tl.load(hbm(0, 4 * 12), (2, 3), "f32", stride=10)
        tl.wait(tl.store_async(hbm(0, 4 * 31), block + block, stride=10))
        later = tl.load_async(hbm(0, 0), (2, 3), "f32", stride=10)
        whole = tl.load_async(hbm(0, 0), (2, 10), "f32", stride=10)
        assert tl.wait(later).array.tolist() == matrix[:2, :3].tolist()
        assert tl.wait(whole).array.tolist() == matrix[:2].tolist()
        tl.store(hbm(0, 4 * 50), tl.wait(later), stride=7)

    run_pair(bench, kernel)
    matrix[3:5, 1:4] = 2 * matrix[1:3, 2:5]
    matrix.reshape(-1)[50:53], matrix.reshape(-1)[57:60] = matrix[0, :3], matrix[1, :3]
    assert bench.sip.memory.read(hbm(0, 0), 240) == matrix.tobytes()
    first, _ = bench.records("dma_read_block")
    assert first.fields == {
        "addr": hbm(0, 48), "nbytes": 24, "rows": 2, "pitch": 40, "dtype": "f32", "shape": "2x3", "result": "h0"
    }  # fmt: skip
    [piece] = bench.records("dma_read")
    assert piece.fields["nbytes"] == 80
    alone = run_pair(pair_bench(), lambda tl: tl.load(hbm(0, 0), 6, "f32"))
    assert [first.end_ps - first.start_ps] == alone.ends("dma_read")
