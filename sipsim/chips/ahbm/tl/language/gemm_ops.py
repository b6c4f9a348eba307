"""The kernel operations of PE_GEMM, a base of :class:`~sipsim.chips.ahbm.tl.language.language.TL`."""

from collections.abc import Sequence
from typing import Any

from sipsim.chips.ahbm.gemm.commands.commands import Dot, Gemm, Matrix
from sipsim.chips.ahbm.gemm.commands.epilogue import BIAS, PLAIN, SCALE, Step
from sipsim.chips.ahbm.gemm.tiling.array import Product
from sipsim.chips.ahbm.tl.futures import Future
from sipsim.chips.ahbm.tl.language.ipcq_ops import IpcqOps
from sipsim.chips.ahbm.tl.values import Pointer, TensorHandle, as_bytes, pointee
from sipsim.core.arithmetic.operations import OPERATIONS
from sipsim.core.dtypes import DType
from sipsim.core.errors import KernelError

ALLOWED = f"{', '.join(PLAIN)}, ('{SCALE}', number), ('{BIAS}', address of a row)"


class GemmFuture(Future):
    """A composite command, the result of ``tl.gemm_async``. ``tl.wait`` returns None for it."""

    __slots__ = ()

    def result(self) -> None:  # type: ignore[override]
        """Nothing."""
        return


class GemmOps(IpcqOps):
    """``dot``, ``gemm`` and ``gemm_async``."""

    def dot(self, a: TensorHandle, b: TensorHandle, acc: TensorHandle | None = None) -> TensorHandle:
        """``a @ b``, or ``acc + a @ b``, of handles of shapes (M, K) and (K, N): (M, N) of f32, or of i32 for integers.

        The products are added in the order of k to ``acc``, else to +0 (:mod:`sipsim.core.arithmetic.matmul`). Blocks
        until the result is in the TCM.

        Raises:
            KernelError: for types or shapes that do not fit.
        """
        task = self._task()
        for name, value in (("a", a), ("b", b), ("acc", acc)):
            if value is not None or name != "acc":
                self._check_handle(value, "tl.dot takes handles")
        if a.dtype is not b.dtype:
            raise KernelError(f"tl.dot takes operands of one type, not {a.dtype} and {b.dtype}; cast one")
        if len(a.shape) != 2 or len(b.shape) != 2 or a.shape[1] != b.shape[0]:
            shapes = f"{list(a.shape)} and {list(b.shape)}"
            raise KernelError(f"tl.dot takes an (M, K) and a (K, N) handle, not {shapes}")
        product, kind = Product(*a.shape, b.shape[1]), a.dtype.accumulator
        if acc is not None and (acc.dtype is not kind or acc.shape != (product.m, product.n)):
            what = f"{acc.dtype}{list(acc.shape)}"
            raise KernelError(f"tl.dot adds to an acc of {kind}{[product.m, product.n]}, not of {what}")
        result = TensorHandle(self, None, kind)
        self._submit(Dot(a, b, acc, product, result)).wait(task)
        return result

    def gemm(
        self,
        a_ptr: int,
        b_ptr: int,
        c_ptr: int,
        shape: Sequence[int],
        *,
        strides: Sequence[int | None] | None = None,
        dtype: object = None,
        out_dtype: object = None,
        epilogue: object = (),
    ) -> None:
        """``c = epilogue(a @ b)`` of matrices in memories of this SIP, as a composite command; blocks until c is there.

        ``shape``: (M, K, N). ``strides``: elements from row to row of a, b and c; None where rows follow each other.
        ``dtype``: of a and b, ``out_dtype``: of c, unless the addresses have types. ``epilogue``: steps on the sums,
        which are f32 (i32), before they are cast: ``"relu"``, ``"gelu"``, ``("scale", number)``, ``("bias", address)``
        of a row of N elements. While it runs it takes ``pe_gemm.buffer_KiB`` of the TCM at most.

        Raises:
            KernelError: for types, shapes, strides or steps that do not fit, and for an output within what is read.
            MemoryAccessError: outside the memories of this SIP.
            TcmFull: when there is no room for the buffer.
        """
        self._submit(self._gemm("tl.gemm", a_ptr, b_ptr, c_ptr, shape, strides, dtype, out_dtype, epilogue)).wait(
            self._task()
        )

    def gemm_async(
        self,
        a_ptr: int,
        b_ptr: int,
        c_ptr: int,
        shape: Sequence[int],
        *,
        strides: Sequence[int | None] | None = None,
        dtype: object = None,
        out_dtype: object = None,
        epilogue: object = (),
    ) -> GemmFuture:
        """Start what :meth:`gemm` does; :meth:`wait` blocks until c is there, as the kernel's end does.

        Raises:
            KernelError: as :meth:`gemm`; what fails later is raised by :meth:`wait`.
        """
        command = self._gemm("tl.gemm_async", a_ptr, b_ptr, c_ptr, shape, strides, dtype, out_dtype, epilogue)
        future = GemmFuture(self._pe, self._submit(command))
        self._note_transfer(future.completion)
        return future

    def _gemm(
        self,
        word: str,
        a_ptr: int,
        b_ptr: int,
        c_ptr: int,
        shape: Sequence[int],
        strides: Sequence[int | None] | None,
        dtype: object,
        out_dtype: object,
        epilogue: object,
    ) -> Gemm:
        self._task()
        product = _product(word, shape)
        m, k, n = product
        kind, out = _types(word, (a_ptr, b_ptr, c_ptr), dtype, out_dtype)
        steps = self._steps(word, epilogue, n, kind.accumulator)
        places = ("a", a_ptr, m, k, kind), ("b", b_ptr, k, n, kind), ("c", c_ptr, m, n, out)
        pitches = _pitches(word, strides)
        found, ranges = [], []
        for (name, ptr, rows, columns, each), pitch in zip(places, pitches, strict=True):
            if pitch is not None and pitch < columns:
                raise KernelError(f"{word}: rows of {name} have {columns} elements, and its stride is {pitch}")
            step_bytes = (columns if pitch is None else pitch) * each.itemsize
            reach_bytes = (rows - 1) * step_bytes + columns * each.itemsize
            address = self._translate(as_bytes(ptr), reach_bytes)
            self._sip.memory.check(address, reach_bytes)
            found.append(Matrix(address, step_bytes))
            ranges.append((address, reach_bytes))
        ranges += [(each.address, n * each.dtype.itemsize) for each in steps if each.dtype is not None]
        self._check_apart(word, ranges)
        return Gemm(found[0], found[1], found[2], product, kind, out, steps)

    def _check_apart(self, word: str, ranges: list[tuple[int, int]]) -> None:
        """``ranges``: first address and bytes of a, b, c, and of rows that are added. The same byte may have several
        addresses."""
        canonical = self._sip.memory.canonical
        spans = [(canonical(address), canonical(address) + nbytes) for address, nbytes in ranges]
        begin, end = spans.pop(2)
        for at, (first, stop) in enumerate(spans):
            if begin < stop and first < end:
                name = ("a", "b", "the bias")[min(at, 2)]
                raise KernelError(f"{word}: c lies within {name}, which is read while c is written; use other memory")

    def _steps(self, word: str, epilogue: object, n: int, accumulator: DType) -> tuple[Step, ...]:
        if isinstance(epilogue, str):
            epilogue = (epilogue,)
        if not isinstance(epilogue, tuple | list):
            raise KernelError(f"{word}: epilogue {epilogue!r} is no sequence of steps; allowed: {ALLOWED}")
        return tuple(self._step(word, each, n, accumulator) for each in epilogue)

    def _step(self, word: str, step: object, n: int, accumulator: DType) -> Step:
        is_pair = isinstance(step, tuple | list) and len(step) == 2
        name: Any = step[0] if is_pair else step  # type: ignore[index]
        value: Any = step[1] if is_pair else None  # type: ignore[index]
        if name == BIAS and is_pair:
            kind = value.dtype if isinstance(value, Pointer) else accumulator
            if kind.accumulator is not accumulator:
                raise KernelError(f"{word}: a bias of {kind} does not fit sums of {accumulator}")
            nbytes = n * kind.itemsize
            address = self._translate(as_bytes(value), nbytes)
            self._sip.memory.check(address, nbytes)
            return Step(BIAS, 0, address, kind)
        if name == SCALE and isinstance(value, int | float) and not isinstance(value, bool):
            if accumulator.is_float:
                return Step(SCALE, float(value))
            if isinstance(value, int) and -(2**31) <= value < 2**31:
                return Step(SCALE, value)
            raise KernelError(f"{word}: sums of {accumulator} are scaled by an i32, not by {value!r}")
        if name in PLAIN and not is_pair:
            if OPERATIONS[str(name)].is_of_floats and not accumulator.is_float:
                raise KernelError(f"{word}: {name} is not defined for sums of {accumulator}")
            return Step(str(name))
        raise KernelError(f"{word}: {step!r} is no step of an epilogue; allowed: {ALLOWED}")


def _product(word: str, shape: object) -> Product:
    sizes = tuple(shape) if isinstance(shape, tuple | list) else ()
    if len(sizes) != 3 or not all(type(each) is int and each >= 1 for each in sizes):
        raise KernelError(f"{word}: shape {shape!r} is not (M, K, N); give three sizes of at least 1")
    return Product(*sizes)


def _pitches(word: str, strides: object) -> tuple[int | None, ...]:
    found = (None, None, None) if strides is None else strides
    if not isinstance(found, tuple | list) or len(found) != 3:
        raise KernelError(f"{word}: strides {strides!r} are not those of a, b and c; give three numbers of elements")
    if not all(each is None or (type(each) is int and each >= 1) for each in found):
        raise KernelError(f"{word}: strides {strides!r} are not numbers of elements, or None")
    return tuple(found)


def _types(word: str, pointers: tuple[int, int, int], dtype: object, out_dtype: object) -> tuple[DType, DType]:
    a, b = pointee(pointers[0], dtype), pointee(pointers[1], dtype)
    if a is not b:
        raise KernelError(f"{word} takes operands of one type, not {a} and {b}")
    if out_dtype is None and not isinstance(pointers[2], Pointer):
        raise KernelError(f"{word}: the address of c has no type; give out_dtype=")
    return a, pointee(pointers[2], out_dtype)
