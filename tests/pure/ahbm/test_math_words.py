"""Words on values: what they refuse and say, what their results take in the TCM, and operands in slots."""

import math
from collections.abc import Callable

import numpy as np
import pytest
from hardware import pair_bench, tcm
from pair_times import near_fetch_ps, put, queue_bench, run_pair, send_i32

from sipsim.chips.ahbm.tl.language import TL
from sipsim.chips.ahbm.tl.values import HANDLES, Pointer, TensorHandle
from sipsim.core.errors import KernelError

MIB = 2**20
BROADCAST = (
    "the shapes do not broadcast; from the last dimension on, sizes must be equal or 1 "
    "(x[:, None] adds a dimension of 1)"
)
DIFFER = "the types differ; make them equal, such as by"
MASK = "a comparison such as x > 0 returns a mask"
INDEXED = (
    "by 2 ':' and by None, such as x[:, None], or by one range of its first dimension; tl.load reads a part of a tensor"
)
REPEATED = "only sizes of 1 can be repeated"
NO_SHAPE = "is not a shape; give one or more sizes of at least 1"
ROWS = "give first and end row, from 0 to 2"
ELSEWHERE = "tl.join takes no view, joined handle or message in a slot, such as"


class Operands:
    """f, g: f32; h: f16; i: i32; b: i8."""

    def __init__(self, tl: TL) -> None:
        self.f, self.g = tl.zeros((2, 3), "f32"), tl.zeros(4, "f32")
        self.h, self.i, self.b = tl.zeros((2, 3), "f16"), tl.zeros((2, 3), "i32"), tl.zeros(2, "i8")


REFUSED: list[tuple[Callable[[TL, Operands], object], str]] = [
    # types
    (lambda _, o: o.f + o.h, f"tl.add of f32[2, 3] and f16[2, 3]: {DIFFER} tl.cast(x, 'f16')"),
    (lambda tl, o: tl.where(o.i < 0, o.f, o.h), f"tl.where of f32[2, 3] and f16[2, 3]: {DIFFER} tl.cast(x, 'f16')"),
    (lambda tl, o: tl.exp(o.i), "tl.exp takes floats, and an operand is i32; write tl.cast(x, 'f32')"),
    (lambda _, o: o.b / 2, "/ takes floats, and an operand is i8; write tl.cast(x, 'f32')"),
    (lambda tl, o: tl.where(o.i, o.f, o.f), f"tl.where takes a mask of i8, not h3 of i32; {MASK}"),
    (lambda tl, o: tl.cast(o.f, "f64"), "dtype 'f64' is not known; allowed: f16, bf16, f32, i32, i8"),
    # numbers
    (lambda _, o: o.f + "1", f"tl.add takes handles and numbers, not str; {HANDLES}"),
    (lambda tl, o: tl.add(Pointer(4, o.f.dtype), o.f), f"tl.add takes handles and numbers, not Pointer; {HANDLES}"),
    (lambda _, o: np.ones(4) * o.f, f"* takes handles and numbers, not ndarray; {HANDLES}"),
    (lambda _, o: o.f**2, "h0 of f32[2, 3] ** 2: PE_MATH has no power; write x * x, or tl.exp(y * tl.log(x))"),
    (lambda _, o: o.f // 2, "h0 of f32[2, 3] // 2: PE_MATH cannot floor-divide; write tl.cast(x / y, 'i32') of floats"),
    (
        lambda _, o: float(o.f),
        "h0 of f32[2, 3] is not a Python number: its elements are known only in simulated time",
    ),
    (
        lambda tl, o: tl.store(Pointer(tcm(0, 0), o.b.dtype), o.f),
        "tl.store of h0 of f32[2, 3] to an address of i8: the types differ; "
        "write x.to('i8'), or give int(ptr) to write the bytes as they are",
    ),
    (lambda _, o: o.f == None, f"== takes handles and numbers, not NoneType; {HANDLES}"),  # noqa: E711
    (lambda _, o: o.f - True, f"- takes handles and numbers, not bool; {HANDLES}"),
    (lambda _, o: o.i * 0.5, "*: 0.5 is no int, but other operands are i32; write tl.cast(x, 'f32')"),
    (lambda _, o: o.b + 128, "tl.add: i8 does not hold 128; write tl.cast(x, 'i32'), or 'f32'"),
    (lambda _, o: o.h * 1e6, "*: f16 does not hold 1000000.0; write tl.cast(x, 'f32')"),
    (lambda tl, _: tl.full(3, 70000, "f16"), "tl.full: f16 does not hold 70000; write tl.cast(x, 'f32')"),
    (lambda tl, _: tl.maximum(1, 2), f"tl.maximum takes a handle, not int; {HANDLES}"),
    # shapes
    (lambda _, o: o.f + o.g, f"tl.add of f32[2, 3] and f32[4]: {BROADCAST}"),
    (lambda tl, o: tl.where(o.b, o.f, o.f), f"tl.where of i8[2] and f32[2, 3] and f32[2, 3]: {BROADCAST}"),
    (lambda tl, _: tl.zeros((2, math.nan), "f32"), f"shape (2, nan) {NO_SHAPE}"),
    *(
        (lambda tl, o, key=key: o.f[key], f"a handle of shape [2, 3] has no rows {key.start}:{key.stop}; {ROWS}")
        for key in (slice(1, 1), slice(0, 3), slice(-1, None), slice(0, 2, 1), slice(0.5, 1))
    ),
    (lambda tl, o: tl.join([]), "tl.join needs at least one handle"),
    (lambda tl, o: tl.join([o.f, o.i]), f"tl.join of f32[2, 3] and i32[2, 3]: {DIFFER} tl.cast(x, 'i32')"),
    (lambda tl, o: tl.join([o.f[:1]]), f"{ELSEWHERE} f32[1, 3]"),
    (lambda tl, o: (lambda x: [tl.join([x]), tl.join([x])])(o.g), f"{ELSEWHERE} f32[4]"),
    (
        lambda tl, o: tl.reshape(o.f, (4, 2)),
        "tl.reshape of f32[2, 3] to [4, 2]: give a shape of as many elements",
    ),
    (lambda tl, o: tl.broadcast_to(o.f, (1, 3)), f"tl.broadcast_to of f32[2, 3] to [1, 3]: {REPEATED}"),
    (lambda tl, o: tl.trans(o.g), "tl.trans takes two dimensions, not f32[4]; use tl.reshape first"),
    (lambda _, o: o.f[0], f"index a handle of shape [2, 3] {INDEXED}"),
    (lambda _, o: o.f[:, :, :], f"index a handle of shape [2, 3] {INDEXED}"),
    (lambda _, o: [*o.f], f"index a handle of shape [2, 3] {INDEXED}"),
    # axes
    (lambda tl, o: tl.sum(o.f, 2), "tl.sum: axis 2 does not exist in f32[2, 3]; give 0 to 1"),
    (lambda tl, o: tl.min(o.f, True), "tl.min: axis True does not exist in f32[2, 3]; give 0 to 1"),
    (lambda tl, o: tl.max(o.f, o.f), "tl.max reduces along an axis; for two handles use tl.maximum or tl.minimum"),
    (lambda tl, _: tl.sum([1, 2]), "tl.sum takes a handle, not list"),
    # the rest
    (
        lambda _, o: 1 if o.f > 0 else 2,
        "h5 has no truth value: elements are known only in simulated time; use tl.where",
    ),
    (lambda tl, _: tl.arange(3, 3), "tl.arange(3, 3): give two ints, the second larger than the first"),
    (lambda tl, _: tl.arange(0, 1.5), "tl.arange(0, 1.5): give two ints, the second larger than the first"),
    (lambda tl, _: tl.arange(0, 4096, "f16"), "tl.arange(0, 4096): f16 holds integers up to 2048 exactly; use 'i32'"),
    (lambda tl, _: tl.arange(0, 200, "i8"), "tl.arange: i8 does not hold 199; write tl.cast(x, 'i32'), or 'f32'"),
    (lambda tl, _: tl.arange(-200, 0, "i8"), "tl.full: i8 does not hold -200; write tl.cast(x, 'i32'), or 'f32'"),
    (
        lambda tl, _: tl.load(tcm(0, 0), 8, "f32", stride=9),
        "tl.load with stride= takes two dimensions, rows and columns, not [8]",
    ),
    (
        lambda tl, _: tl.load_async(tcm(0, 0), (2, 4), "f32", stride=3),
        "tl.load_async: stride=3 is too small for rows of 4 elements; give 4 elements or more",
    ),
    (
        lambda tl, o: tl.store(tcm(0, 0), o.f, stride=2.0),
        "tl.store: stride=2.0 is too small for rows of 3 elements; give 3 elements or more",
    ),
    (lambda tl, _: tl.delay(math.nan), "tl.delay takes a time in ns, from 0 to 1000000000, not nan"),
]


@pytest.mark.parametrize(("word", "says"), REFUSED, ids=[says[:40] for _, says in REFUSED])
def test_what_is_refused(word: Callable[[TL, Operands], object], says: str) -> None:
    bench, seen = pair_bench(), list[str]()

    def kernel(tl: TL) -> None:
        operands = Operands(tl)
        with pytest.raises(KernelError) as caught:
            word(tl, operands)
        seen.append(str(caught.value))

    run_pair(bench, kernel)
    assert seen == [says]


def test_a_released_operand_and_its_view() -> None:
    """A view stays when its operand is released; the operand itself does not. A handle is no key."""
    bench = pair_bench()

    def kernel(tl: TL) -> None:
        x = tl.full((2, 3), 2, "f32")
        column = tl.reshape(x, 6)
        assert x in [x]
        with pytest.raises(TypeError, match="unhashable"):
            {x: 1}  # noqa: B018
        tl.release(x)
        for word in (lambda: -x, lambda: x[None], lambda: tl.sum(x), lambda: tl.cast(x, "i8"), lambda: tl.trans(x)):
            with pytest.raises(KernelError, match=r"h0 was given to tl\.release"):
                word()
        assert (column + column).array.tolist() == [4.0] * 6

    run_pair(bench, kernel)


def test_room() -> None:
    """Results take their bytes; views, and casts that change nothing, share the room of their operand."""
    bench = pair_bench({"tcm_layout.handles_take_room": True})
    room, seen = bench.sip.pe(0, 0).room, list[float]()
    assert room is not None

    def kernel(tl: TL) -> None:
        def note() -> None:
            seen.append(room.used_bytes / MIB)

        x = tl.zeros((1024, 256), "f32")
        note()
        column, same = x[:, None], tl.cast(x, "f32")
        assert same is x
        note()
        del x, same
        note()
        half = tl.cast(column, "f16")
        note()
        mask = column > 0
        note()
        row = tl.max(column, 2)
        note()
        del column
        note()
        big = tl.broadcast_to(mask, (2, 1024, 1, 256))
        note()
        tl.release(big)
        note()
        del half, mask, row

    run_pair(bench, kernel)
    rows = 1024 * 4 / MIB
    assert seen == [1, 1, 1, 1.5, 1.75, 1.75 + rows, 0.75 + rows, 1.25 + rows, 0.75 + rows]
    assert room.used_bytes == 0


def test_room_of_parts() -> None:
    """A part keeps the room of the whole, and a whole that of its parts."""
    bench = pair_bench({"tcm_layout.handles_take_room": True})
    room, seen = bench.sip.pe(0, 0).room, list[float]()
    assert room is not None

    def kernel(tl: TL) -> None:
        def note() -> None:
            seen.append(room.used_bytes / MIB)

        x, y = tl.zeros((1024, 256), "f32"), tl.zeros((1024, 256), "f32")
        start_ps = bench.engine.now_ps
        part, both = x[3:4], tl.join([y, x])
        assert bench.engine.now_ps == start_ps
        assert (part.shape, both.shape) == ((1, 256), (2 * 1024 * 256,))
        del x, y
        note()
        del both
        note()
        del part
        note()

    run_pair(bench, kernel)
    assert seen == [2, 1, 0]


@pytest.mark.ideal
@pytest.mark.parametrize("latch", ["in_place", None])
def test_operands_in_a_slot_are_fetched_first(latch: str | None) -> None:
    """A message in HBM, which cannot be joined, and whose first use is a view, which takes the time of the fetch; then
    none is left.
    """
    bench = queue_bench(buffer_kind="hbm", latch=latch, n_slots=2)
    put(bench, tcm(0, 0), range(16), "<i4")
    seen: list[int] = []

    def receiver(tl: TL) -> None:
        message: TensorHandle = tl.recv("W", 16, "i32")
        start_ps = bench.engine.now_ps
        with pytest.raises(KernelError, match="in a slot"):
            tl.join([message])
        table = tl.reshape(message, (4, 4))
        seen.append(bench.engine.now_ps - start_ps)
        assert tl.sum(table, 1).array.tolist() == [6, 22, 38, 54]
        assert (message * 2).array.tolist() == [2 * each for each in range(16)]
        seen.append(bench.engine.now_ps - start_ps - seen[0])

    run_pair(bench, lambda tl: send_i32(tl, tcm(0, 0)), receiver)
    # The data of a fetch are 64 B, the operations' too.
    assert seen == [near_fetch_ps("hbm") + 1_000 + 1_000, 2 * (1_000 + 1_000)]


def test_a_load_that_nobody_waits_for_ends_before_its_kernel() -> None:
    bench = pair_bench()
    bench.kernel(0, 0, lambda tl: tl.load_async(tcm(0, 0), 1 << 10, "f32") and None)
    (task,) = bench.sip.tasks
    while not task.ended:
        assert bench.step()
    assert len(bench.records("dma_read")) == 1
