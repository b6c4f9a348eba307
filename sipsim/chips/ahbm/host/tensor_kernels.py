"""The kernels behind the operations of tensors. Each PE works on its own block, in pieces that its TCM holds.

While PE_MATH works on a piece, the next one is read and the one before is written.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from sipsim.chips.ahbm.tl.values import Pointer, TensorHandle

if TYPE_CHECKING:
    from sipsim.chips.ahbm.tl.language import TL

PIECE_BYTES = 65536
"""Of one operand: with what is read ahead and the results it fills some 0.5 MiB of the TCM."""
Place = tuple[int, int]
"""(cube, PE)."""


class Copy(NamedTuple):
    """``nbytes`` from ``begin`` of one tensor to ``end`` of another one, in bytes from their first elements."""

    begin: int
    end: int
    nbytes: int


class Blocks(NamedTuple):
    """Where a PE finds its block of a tensor: bytes from cube to cube, and from PE to PE; 0 where it is replicated."""

    cube_bytes: int
    pe_bytes: int

    def of(self, ptr: Pointer, tl: "TL") -> Pointer:
        """The address of the block of the kernel's PE."""
        return ptr + (tl.program_id(1) * self.cube_bytes + tl.program_id(0) * self.pe_bytes)


def elementwise(
    function: Callable[..., TensorHandle], blocks: Sequence[Blocks], n_elem: int, *ptrs_and_tl: Any
) -> None:
    """``function(tl, *values)`` of blocks of ``n_elem`` elements each. The last of the addresses is the result's."""
    *ptrs, tl = ptrs_and_tl
    *sources, target = [each.of(ptr, tl) for each, ptr in zip(blocks, ptrs, strict=True)]
    most = PIECE_BYTES // max(each.dtype.itemsize for each in (*sources, target))
    pieces = [(first, (min(most, n_elem - first),)) for first in range(0, n_elem, most)]
    for first, values in _read_ahead(pieces, sources, tl):
        tl.store_async(target + first * target.dtype.itemsize, function(tl, *values))


def by_rows(
    function: Callable[..., TensorHandle], blocks: Sequence[Blocks], shape: tuple[int, int], *ptrs_and_tl: Any
) -> None:
    """``function(tl, values)`` of whole rows of a block of ``shape``; of the result, too, which has the same shape.

    Between the two addresses may be that of one row, which ``function`` gets as its last argument.
    """
    source_ptr, *row_ptrs, target_ptr, tl = ptrs_and_tl
    source, target = blocks[0].of(source_ptr, tl), blocks[-1].of(target_ptr, tl)
    rows, columns = shape
    row = [tl.load(ptr, columns) for ptr in row_ptrs]
    most = max(PIECE_BYTES // (columns * source.dtype.itemsize), 1)
    pieces = [(first * columns, (min(most, rows - first), columns)) for first in range(0, rows, most)]
    for first, (values,) in _read_ahead(pieces, [source], tl):
        tl.store_async(target + first * target.dtype.itemsize, function(tl, values, *row))


def softmax(tl: "TL", values: TensorHandle) -> TensorHandle:
    """Of each row, in f32: ``exp(x - max) / sum(exp(x - max))``, rounded to the type of ``values``."""
    x = values.to("f32")
    powers = tl.exp(x - tl.max(x, axis=1, keep_dims=True))
    return (powers / tl.sum(powers, axis=1, keep_dims=True)).to(values.dtype)


def matmul(
    blocks: Sequence[Blocks], shape: tuple[int, int, int], a_ptr: Pointer, b_ptr: Pointer, c_ptr: Pointer, tl: "TL"
) -> None:
    """The product of the PE's blocks of two matrices, (M, K) and (K, N)."""
    a, b, c = (each.of(ptr, tl) for each, ptr in zip(blocks, (a_ptr, b_ptr, c_ptr), strict=True))
    tl.gemm(a, b, c, shape)


def copy(copies: Mapping[Place, Sequence[Copy]], source: Pointer, target: Pointer, tl: "TL") -> None:
    """Copy what is listed for the PE, from whatever blocks of ``source`` have it to its block of ``target``."""
    itemsize = source.dtype.itemsize
    most = PIECE_BYTES // itemsize * itemsize
    cut = [
        Copy(begin + skipped, end + skipped, min(most, nbytes - skipped))
        for begin, end, nbytes in copies[tl.program_id(1), tl.program_id(0)]
        for skipped in range(0, nbytes, most)
    ]
    pieces = [(each.begin // itemsize, (each.nbytes // itemsize,)) for each in cut]
    for each, (_, (values,)) in zip(cut, _read_ahead(pieces, [source], tl), strict=True):
        tl.store_async(target + each.end, values)


def _read_ahead(
    pieces: Sequence[tuple[int, tuple[int, ...]]], sources: Sequence[Pointer], tl: "TL"
) -> Iterator[tuple[int, list[TensorHandle]]]:
    """The values of each piece, (first element, shape), of all sources, while the next piece is read."""

    def start(piece: tuple[int, tuple[int, ...]]) -> list[Any]:
        first, dims = piece
        return [tl.load_async(each + first * each.dtype.itemsize, dims) for each in sources]

    reads = start(pieces[0])
    for index, (first, _) in enumerate(pieces):
        values = [tl.wait(each) for each in reads]
        reads = start(pieces[index + 1]) if index + 1 < len(pieces) else []
        yield first, values
