"""``tl.gemm`` and ``tl.dot`` give the bits of :mod:`sipsim.core.arithmetic.matmul`, whatever the shapes and tiles."""

from typing import Any

import numpy as np
import pytest
from hardware import hbm, pair_bench, tcm
from products import Case, ptr, put, run, run_gemm, taken, values

from sipsim.chips.ahbm.address import PhysAddr
from sipsim.chips.ahbm.gemm.tiling import Tilings
from sipsim.core.arithmetic.matmul import matmul
from sipsim.core.arithmetic.operations import cast, elementwise
from sipsim.core.dtypes import DTYPES
from sipsim.core.errors import KernelError, MemoryAccessError, TcmFull

SMALL = {"pe_gemm.buffer_KiB": 24}
CASES = [
    (Case(1, 1, 1), {}),
    (Case(33, 65, 31), {}),
    (Case(7, 300, 5, "f32"), {}),
    (Case(100, 50, 130, "bf16", "f32"), {}),
    (Case(64, 129, 200, "i8", "i32"), {}),
    (Case(64, 129, 200, "i8", "i8"), {}),
    (Case(40, 33, 70, "i32"), {}),
    (Case(31, 257, 300, "f16", "f16", pad=11), {}),
    (Case(70, 200, 140, "f16", "bf16", pad=3), SMALL),
    (Case(65, 40, 66, "f32", "f16"), {"pe_gemm.rows": 8, "pe_gemm.columns": 16, "pe_gemm.buffer_KiB": 8}),
]


@pytest.mark.parametrize("dataflow", ["os", "ws", "is"])
@pytest.mark.parametrize(("case", "settings"), CASES)
def test_a_gemm_has_the_bits_of_the_definition(case, settings, dataflow):
    given = values(case)
    _, found = run_gemm(case, given, {**settings, "pe_gemm.dataflow": dataflow})
    sums = matmul(given["a"], given["b"], DTYPES[case.dtype])
    expected = cast(sums, DTYPES[case.out or case.dtype])
    assert found[:, : case.n].tobytes() == np.ascontiguousarray(expected).tobytes()
    assert not found[:, case.n :].any(), "elements between its rows stay as they were"


def test_integers_take_the_quick_way_to_the_same_bits():
    case = Case(96, 200, 160)
    given = values(case, largest=3)
    _, found = run_gemm(case, given)
    exact = given["a"].astype(np.int64) @ given["b"].astype(np.int64)
    assert (found.astype(np.int64) == exact).all()


STEPS = {
    "relu": lambda x, kind, row: elementwise("relu", (x,), kind),
    "gelu": lambda x, kind, row: elementwise("gelu", (x,), kind),
    "scale": lambda x, kind, row: elementwise("mul", (x, np.asarray(0.3, kind.numpy)), kind),
    "bias": lambda x, kind, row: elementwise("add", (x, cast(row, kind)), kind),
}


@pytest.mark.parametrize(("dtype", "names"), [("f16", "scale bias gelu"), ("bf16", "bias relu scale"), ("f32", "gelu")])
def test_an_epilogue_works_on_the_sums(dtype, names):
    case, kind = Case(50, 70, 90, dtype), DTYPES["f32"]
    given = values(case)
    given["bias"] = np.random.default_rng(5).standard_normal((1, 90)).astype(np.float32)
    pairs = {"scale": ("scale", 0.3), "bias": ("bias", ptr("bias"))}
    steps = [pairs.get(name, name) for name in names.split()]
    bench, found = run_gemm(case, given, epilogue=steps)
    expected = matmul(given["a"], given["b"], DTYPES[dtype])
    for name in names.split():
        expected = STEPS[name](expected, kind, given["bias"])
    assert found.tobytes() == cast(expected, DTYPES[dtype]).tobytes()
    (record,) = bench.records("gemm")
    text = {"scale": f"scale={(0.3).hex()}", "bias": f"bias=f32@{ptr('bias')}"}
    assert record.fields["epilogue"] == ";".join(text.get(name, name) for name in names.split())


def test_integers_are_scaled_by_integers():
    case = Case(9, 10, 11, "i8", "i32")
    given = values(case)
    _, found = run_gemm(case, given, epilogue=[("scale", 3), "relu"])
    assert (found == np.maximum(matmul(given["a"], given["b"], DTYPES["i8"]) * 3, 0)).all()


def test_the_record_says_all_that_was_done():
    bench, _ = run_gemm(Case(5, 6, 7, "f16", "f32", pad=1), values(Case(5, 6, 7)))
    (record,) = bench.records("gemm")
    assert record.fields == {
        **{"a": ptr("a"), "a_pitch": 14, "b": ptr("b"), "b_pitch": 16, "c": ptr("c"), "c_pitch": 32},
        **{"shape": "5x6x7", "dtype": "f16", "out_dtype": "f32", "epilogue": "none"},
    }


# --- dot ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["f16", "bf16", "f32", "i8", "i32"])
@pytest.mark.parametrize("has_acc", [False, True])
def test_a_dot_of_handles(dtype, has_acc):
    case, kind = Case(33, 40, 65, dtype), DTYPES[dtype]
    given = values(case)
    acc = np.arange(33 * 65).reshape(33, 65).astype(kind.accumulator.numpy) if has_acc else None
    bench = pair_bench()
    put(bench, "a", given["a"])
    put(bench, "b", given["b"])
    if acc is not None:
        put(bench, "bias", acc)
    got: list[Any] = []

    def body(tl: Any) -> None:
        a, b = tl.load(ptr("a"), (33, 40), dtype), tl.load(ptr("b"), (40, 65), dtype)
        start = None if acc is None else tl.load(ptr("bias"), (33, 65), kind.accumulator)
        result = tl.dot(a, b, start)
        got.append((result.dtype, result.array.tobytes()))

    run(bench, body)
    assert got == [(kind.accumulator, matmul(given["a"], given["b"], kind, acc).tobytes())]
    (record,) = bench.records("dot")
    names = ("h0", "h1", "h2", "h3") if has_acc else ("h0", "h1", "none", "h2")
    assert tuple(record.fields[name] for name in ("a", "b", "acc", "result")) == names


# --- data goes the way that its tokens say --------------------------------------------------------------------


def test_operands_are_those_that_pe_dma_has_read(monkeypatch):
    """One piece that does not come, two that take each other's place: both show in the result."""
    from sipsim.chips.ahbm.gemm.engine import Operands

    case = Case(64, 256, 128)
    given = values(case, largest=3)
    _, right = run_gemm(case, given)
    whole = Operands.put

    def drop(self, operand, place, data):
        if (operand, place.top, place.left) != (0, 32, 128):
            whole(self, operand, place, data)

    def swap(self, operand, place, data):
        other = {0: 128, 128: 0}[place.left] if operand == 0 and place.top == 0 else place.left
        whole(self, operand, place._replace(left=other), data)

    for planted in (drop, swap):
        monkeypatch.setattr(Operands, "put", planted)
        _, wrong = run_gemm(case, given)
        assert (wrong != right).any()


def test_operands_are_read_when_they_are_loaded():
    """A store to the last row of a while the product runs comes too late for it where that row is loaded already."""
    case = Case(32, 32, 32)
    given = values(case, largest=3)
    bench = pair_bench()
    put(bench, "a", given["a"])
    put(bench, "b", given["b"])

    def body(tl: Any) -> None:
        shape = (case.m, case.k, case.n)
        before = tl.gemm_async(ptr("a"), ptr("b"), ptr("c"), shape, dtype="f16", out_dtype="f16")
        bench.pause(0, 0, 500_000)
        bench.sip.memory.write(ptr("a"), bytes(32 * 32 * 2))
        assert tl.wait(before) is None

    run(bench, body)
    expected = cast(matmul(given["a"], given["b"], DTYPES["f16"]), DTYPES["f16"])
    assert taken(bench, case).tobytes() == expected.tobytes()


def test_matrices_in_any_memory_of_the_sip():
    """A in the PE's own TCM, B in the HBM of another cube, c in the SRAM of that one."""
    case = Case(40, 130, 70)
    given = values(case, largest=3)
    bench = pair_bench(SMALL)
    places = tcm(0, 4096), hbm(1, 4096, 3), PhysAddr(0, 1, 0, "sram", 0).encode()
    for place, name in zip(places, "ab", strict=False):
        bench.sip.memory.write(place, given[name].tobytes())
    run(bench, lambda tl: tl.gemm(*places, (40, 130, 70), dtype="f16", out_dtype="f16"))
    expected = cast(matmul(given["a"], given["b"], DTYPES["f16"]), DTYPES["f16"])
    assert bench.sip.memory.read(places[2], 40 * 70 * 2) == expected.tobytes()


def test_its_buffer_has_room_while_it_runs_and_returns_it():
    bench = pair_bench({"tcm_layout.handles_take_room": True})
    used: list[int] = []

    def body(tl: Any) -> None:
        room = bench.sip.pe(0, 0).room
        running = tl.gemm_async(A, B, C, (64, 256, 64), **F16)
        used.append(room.used_bytes)
        tl.wait(running)
        used.append(room.used_bytes)

    run(bench, body)
    assert used == [2 * 64 * 256 * 2 + 2 * 32 * 64 * 2, 0], "both operands, and two blocks of outputs"


def test_the_end_of_a_kernel_waits_for_its_products():
    case = Case(64, 64, 64)
    given = values(case, largest=3)
    bench = pair_bench()
    put(bench, "a", given["a"])
    put(bench, "b", given["b"])
    run(bench, lambda tl: tl.gemm_async(ptr("a"), ptr("b"), ptr("c"), (64, 64, 64), dtype="f16", out_dtype="f16"))
    expected = cast(matmul(given["a"], given["b"], DTYPES["f16"]), DTYPES["f16"])
    assert taken(bench, case).tobytes() == expected.tobytes()


# --- what kernels get wrong -----------------------------------------------------------------------------------

F16 = {"dtype": "f16", "out_dtype": "f16"}
I8 = {"dtype": "i8", "out_dtype": "i8"}
A, B, C = ptr("a"), ptr("b"), ptr("c")
# The SRAM of a cube has an address by each of its PEs.
S, S_OF_PE_1 = (PhysAddr(0, 0, pe, "sram", 0).encode() for pe in (0, 1))
MISTAKES = [
    ((A, B, C, (4, 4)), F16, r"shape \(4, 4\) is not \(M, K, N\)"),
    ((A, B, C, (4, 0, 4)), F16, r"shape \(4, 0, 4\) is not \(M, K, N\)"),
    ((A, B, C, (4, 4, 4)), {"dtype": "f16"}, "address of c has no type; give out_dtype="),
    ((A, B, C, (4, 4, 4)), {"out_dtype": "f16"}, "has no type; give dtype="),
    ((A, B, C, (4, 4, 4)), {"dtype": "f64", "out_dtype": "f16"}, "dtype 'f64' is not known"),
    ((A, B, A + 8, (4, 4, 4)), F16, "c overlaps a, which is read while c is written"),
    ((A, B, B + 24, (4, 4, 4)), F16, "c overlaps b"),
    ((S, B, S_OF_PE_1 + 8, (4, 4, 4)), F16, "c overlaps a"),
    ((A, B, C, (4, 4, 4)), {**F16, "epilogue": [("bias", C + 16)]}, "c overlaps the bias, which is read"),
    ((A, B, S, (4, 4, 4)), {**F16, "epilogue": ["relu", ("bias", B), ("bias", S_OF_PE_1)]}, "overlaps the bias"),
    ((A, B, C, (4, 4, 4)), {**F16, "strides": (3, 4, 4)}, "stride 3 of a is too small; its rows have 4 elements"),
    ((A, B, C, (4, 4, 4)), {**F16, "strides": (4, 4)}, "must be three numbers of elements"),
    ((A, B, C, (4, 4, 4)), {**F16, "strides": (4, 4.0, 4)}, "must be numbers of elements of at least 1, or None"),
    ((A, B, C, (4, 4, 4)), {**F16, "epilogue": "tanh"}, "'tanh' is no step of an epilogue; allowed steps: relu"),
    ((A, B, C, (4, 4, 4)), {**F16, "epilogue": 3}, "epilogue 3 is no sequence of steps"),
    ((A, B, C, (4, 4, 4)), {**F16, "epilogue": ["scale"]}, "'scale' is no step"),
    ((A, B, C, (4, 4, 4)), {**F16, "epilogue": [("bias", 1.5)]}, "1.5 is not an address"),
    ((A, B, C, (4, 4, 4)), {**I8, "epilogue": "gelu"}, "gelu is not defined for sums of i32"),
    ((A, B, C, (4, 4, 4)), {**I8, "epilogue": [("scale", 0.5)]}, "must be an i32, not 0.5"),
    ((1.5, B, C, (4, 4, 4)), F16, "1.5 is not an address"),
]


@pytest.mark.parametrize(("args", "flags", "text"), MISTAKES)
def test_a_mistake_is_one_clear_error(args, flags, text):
    with pytest.raises(KernelError, match=text):
        run(pair_bench(), lambda tl: tl.gemm(*args, **flags))


def test_a_matrix_outside_its_memory():
    last = hbm(0, 2**30 * 6 - 64)
    with pytest.raises(MemoryAccessError):
        run(pair_bench(), lambda tl: tl.gemm(last, B, C, (64, 64, 64), **F16))


def test_a_buffer_without_room_and_one_that_is_too_small():
    room = {"tcm_layout.handles_take_room": True, "pe_gemm.buffer_KiB": 16 * 1024}
    with pytest.raises(TcmFull, match=r"the buffer of a gemm \(pe_gemm.buffer_KiB\) of \d+ bytes does not fit"):
        run(pair_bench(room), lambda tl: tl.gemm(A, B, C, (2048, 2048, 2048), **F16))
    small = {"pe_gemm.buffer_KiB": 1, "pe_gemm.dataflow": "ws"}
    with pytest.raises(
        KernelError, match=r"two tokens need \d+ bytes, the buffer has 1024; set pe_gemm.buffer_KiB higher"
    ):
        run(pair_bench(small), lambda tl: tl.gemm(A, B, C, (64, 64, 64), **F16))


def test_the_buffer_of_a_product_that_waited_is_of_the_line_that_submitted_it():
    """It starts when the one before it ends, and no line of the kernel runs then."""
    settings = {"tcm_layout.handles_take_room": True, "pe_scheduler.queue_depth": 4}

    def kernel(tl: Any) -> None:
        tl.gemm_async(A, B, C, (64, 64, 64), **F16)
        tl.gemm_async(A, B, C, (512, 1024, 512), **F16)
        held = []
        while True:
            held.append(tl.load(A, (64, 1024), "f16"))

    line = kernel.__code__.co_firstlineno + 2
    with pytest.raises(TcmFull, match=rf"the buffer of a gemm \S+ of \d+ bytes, made at gemm/test_gemm.py:{line}; h"):
        run(pair_bench(settings), kernel)


def test_an_error_of_another_kind_is_no_small_buffer(monkeypatch):
    """Only what a larger buffer would mend is told so."""

    def broken(*_: object) -> Any:
        raise ValueError("a bug")

    monkeypatch.setattr(Tilings, "get", broken)
    with pytest.raises(Exception, match="a bug") as caught:
        run(pair_bench(), lambda tl: tl.gemm(A, B, C, (64, 64, 64), **F16))
    assert "buffer_KiB" not in str(caught.value)


DOTS = [
    (lambda tl, a, b: tl.dot(a, 3), "tl.dot takes handles, not int"),
    (lambda tl, a, b: tl.dot(a, b), r"an \(M, K\) and a \(K, N\) handle, not \[4, 6\] and \[4, 6\]"),
    (lambda tl, a, b: tl.dot(a, tl.load(B, (6, 4), "f32")), "operands of one type, not f16 and f32"),
    (lambda tl, a, b: tl.dot(a, tl.load(B, 6, "f16")), r"not \[4, 6\] and \[6\]"),
    (lambda tl, a, b: tl.dot(a, tl.load(B, (6, 4), "f16"), b), r"an acc of f32\[4, 4\], not of f16\[4, 6\]"),
]


@pytest.mark.parametrize(("body", "text"), DOTS)
def test_a_wrong_dot_is_one_clear_error(body, text):
    with pytest.raises(KernelError, match=text):
        run(pair_bench(), lambda tl: body(tl, tl.load(A, (4, 6), "f16"), tl.load(B, (4, 6), "f16")))


def test_the_span_of_a_gemm_has_the_addresses_of_its_input_and_of_its_output():
    """The addresses by which ``--explain`` knows their memories."""
    bench = pair_bench()
    spans = bench.sip.recorder.spans = []
    run(bench, lambda tl: tl.gemm(A, B, C, (64, 64, 64), **F16))
    (span,) = [each for each in spans if each.name == "gemm" and not each.is_wait]
    assert span.facts[2:] == (A, C)
