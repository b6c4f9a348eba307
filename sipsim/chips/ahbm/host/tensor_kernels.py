"""Kernels of the operations of tensors. Each PE processes its block in pieces that fit the TCM.

While PE_MATH processes a piece, the next piece is loaded and the previous one is stored.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from sipsim.chips.ahbm.host.layout import Place
from sipsim.chips.ahbm.tl.values import Pointer, TensorHandle

if TYPE_CHECKING:
    from sipsim.chips.ahbm.tl.language import TL

PIECE_BYTES = 65536
"""Bytes per piece of one operand: with the pieces loaded ahead and the results, about 0.5 MiB of the TCM."""


class CopyRange(NamedTuple):
    """Copy of ``nbytes`` from byte offset ``begin`` of the source tensor to byte offset ``end`` of the target."""

    begin: int
    end: int
    nbytes: int


class BlockStrides(NamedTuple):
    """Address strides of a tensor's blocks, in bytes: from cube to cube and from PE to PE; 0 on a replicated level."""

    cube_bytes: int
    pe_bytes: int

    def address(self, ptr: Pointer, tl: "TL") -> Pointer:
        """Return the address of the block of the kernel's PE; ``ptr``: address of the tensor."""
        return ptr + (tl.program_id(1) * self.cube_bytes + tl.program_id(0) * self.pe_bytes)


def elementwise(
    function: Callable[..., TensorHandle], blocks: Sequence[BlockStrides], n_elem: int, *ptrs_and_tl: Any
) -> None:
    """Compute ``function(tl, *values)`` on blocks of ``n_elem`` elements. The last address is of the result."""
    *ptrs, tl = ptrs_and_tl
    *sources, target = [each.address(ptr, tl) for each, ptr in zip(blocks, ptrs, strict=True)]
    piece_elems = PIECE_BYTES // max(each.dtype.itemsize for each in (*sources, target))
    pieces = [(first, (min(piece_elems, n_elem - first),)) for first in range(0, n_elem, piece_elems)]
    for first, values in _read_ahead(pieces, sources, tl):
        tl.store_async(target + first * target.dtype.itemsize, function(tl, *values))


def by_rows(
    function: Callable[..., TensorHandle], blocks: Sequence[BlockStrides], shape: tuple[int, int], *ptrs_and_tl: Any
) -> None:
    """Compute ``function(tl, values)`` on whole rows of a block of ``shape``; the result has the same shape.

    Arguments: the addresses of source and result. Between them may be the address of one row of ``shape[1]`` elements,
    which ``function`` gets as its last argument.
    """
    source_ptr, *row_ptrs, target_ptr, tl = ptrs_and_tl
    source, target = blocks[0].address(source_ptr, tl), blocks[-1].address(target_ptr, tl)
    rows, columns = shape
    row = [tl.load(ptr, columns) for ptr in row_ptrs]
    piece_rows = max(PIECE_BYTES // (columns * source.dtype.itemsize), 1)
    pieces = [(first * columns, (min(piece_rows, rows - first), columns)) for first in range(0, rows, piece_rows)]
    for first, (values,) in _read_ahead(pieces, [source], tl):
        tl.store_async(target + first * target.dtype.itemsize, function(tl, values, *row))


def softmax(tl: "TL", values: TensorHandle) -> TensorHandle:
    """Return each row's softmax in f32, rounded to the type of ``values``: ``exp(x - max) / sum(exp(x - max))``."""
    x = values.to("f32")
    powers = tl.exp(x - tl.max(x, axis=1, keep_dims=True))
    return (powers / tl.sum(powers, axis=1, keep_dims=True)).to(values.dtype)


def matmul(blocks: Sequence[BlockStrides], shape: tuple[int, int, int], *ptrs_and_tl: Any) -> None:
    """Multiply the PE's blocks of two matrices; the addresses of both and of the result come before ``tl``."""
    *ptrs, tl = ptrs_and_tl
    a, b, c = (each.address(ptr, tl) for each, ptr in zip(blocks, ptrs, strict=True))
    tl.gemm(a, b, c, shape)


def copy(copies: Mapping[Place, Sequence[CopyRange]], source: Pointer, target: Pointer, tl: "TL") -> None:
    """Carry out the copies listed for the PE: from any blocks of ``source`` to its block of ``target``."""
    itemsize = source.dtype.itemsize
    piece_bytes = PIECE_BYTES // itemsize * itemsize
    ranges = [
        CopyRange(begin + skipped, end + skipped, min(piece_bytes, nbytes - skipped))
        for begin, end, nbytes in copies[tl.program_id(1), tl.program_id(0)]
        for skipped in range(0, nbytes, piece_bytes)
    ]
    pieces = [(each.begin // itemsize, (each.nbytes // itemsize,)) for each in ranges]
    for each, (_, (values,)) in zip(ranges, _read_ahead(pieces, [source], tl), strict=True):
        tl.store_async(target + each.end, values)


def _read_ahead(
    pieces: Sequence[tuple[int, tuple[int, ...]]], sources: Sequence[Pointer], tl: "TL"
) -> Iterator[tuple[int, list[TensorHandle]]]:
    """Yield the values of each piece, (first element, shape), from all sources while the next piece is loaded."""

    def start(piece: tuple[int, tuple[int, ...]]) -> list[Any]:
        first, dims = piece
        return [tl.load_async(each + first * each.dtype.itemsize, dims) for each in sources]

    reads = start(pieces[0])
    for index, (first, _) in enumerate(pieces):
        values = [tl.wait(each) for each in reads]
        reads = start(pieces[index + 1]) if index + 1 < len(pieces) else []
        yield first, values
