"""Which layouts the operations of tensors take, and that of their results."""

from itertools import product
from math import prod

from sipsim.chips.ahbm.host.layout.dp_policy import COLUMNS, COPIES, ROWS, DPPolicy
from sipsim.chips.ahbm.host.tensor_kernels import Blocks, Copy, Place


def blocks_of(dp: DPPolicy, block_bytes: int) -> Blocks:
    """Where each PE finds its block of a tensor."""
    of_cube = 1 if dp.pe == COPIES else dp.num_pes
    return Blocks(0 if dp.cube == COPIES else of_cube * block_bytes, 0 if dp.pe == COPIES else block_bytes)


def product_layout(a: DPPolicy, b: DPPolicy) -> DPPolicy:
    """The layout of ``a @ b``: rows as those of ``a``, columns as those of ``b``.

    Raises:
        ValueError: when they lie on other PEs, or a PE has not what its block of the result needs.
    """
    if (a.num_cubes, a.num_pes) != (b.num_cubes, b.num_pes):
        raise ValueError(
            f"a @ b: a lies on {a.num_cubes} cubes of {a.num_pes} PEs and b on {b.num_cubes} of {b.num_pes}; "
            f"give both the same num_cubes and num_pes, and replicate what all PEs need"
        )
    levels = zip(("cube", "pe"), a.splits(), b.splits(), strict=True)
    cube, pe = (_level(name, of_a, of_b) for name, (of_a, _), (of_b, _) in levels)
    return DPPolicy(cube, pe, a.num_cubes, a.num_pes)


def _level(name: str, a: str, b: str) -> str:
    found = {(ROWS, COPIES): ROWS, (COPIES, COLUMNS): COLUMNS, (COPIES, COPIES): COPIES}.get((a, b))
    if found is None:
        raise ValueError(
            f"a @ b: with {name}={a!r} of a and {name}={b!r} of b no {name} has all that its part of the result needs; "
            f"allowed: row_wise and replicate, replicate and column_wise, or replicate twice"
        )
    return found


def row_copies(
    source: DPPolicy, shape: tuple[int, ...], target: DPPolicy, rows: list[int], itemsize: int
) -> dict[Place, list[Copy]]:
    """For each PE of the target, what it copies from the source: its rows, those that follow each other in one piece.

    ``rows``: of the source, in the order of the target's. Both have their columns split in the same way.
    """
    of_source, of_target = source.block_shape(shape), target.block_shape((len(rows), *shape[1:]))
    nbytes = prod(of_source[1:]) * itemsize
    here, there = (blocks_of(dp, nbytes * block[0]) for dp, block in ((source, of_source), (target, of_target)))
    copies: dict[Place, list[Copy]] = {}
    for cube, pe in product(range(target.num_cubes), range(target.num_pes)):
        first, mine = _part(target, cube, pe) * of_target[0], copies.setdefault((cube, pe), [])
        end = cube * there.cube_bytes + pe * there.pe_bytes
        for row in rows[first : first + of_target[0]]:
            part, within = divmod(row, of_source[0])
            at_cube, at_pe = _place(source, part, cube, pe)
            begin = at_cube * here.cube_bytes + at_pe * here.pe_bytes + within * nbytes
            last = mine[-1] if mine else None
            if last is not None and within and last.begin + last.nbytes == begin:
                mine[-1] = last._replace(nbytes=last.nbytes + nbytes)
            else:
                mine.append(Copy(begin, end, nbytes))
            end += nbytes
    return copies


def _part(dp: DPPolicy, cube: int, pe: int) -> int:
    """Which part of the rows a PE has."""
    part = cube if dp.cube == ROWS else 0
    return part * dp.num_pes + pe if dp.pe == ROWS else part


def _place(dp: DPPolicy, part: int, cube: int, pe: int) -> Place:
    """The PE with a part of the rows, and of the columns those of a PE: at levels that do not split rows, that PE's."""
    if dp.pe == ROWS:
        part, pe = divmod(part, dp.num_pes)
    return (part if dp.cube == ROWS else cube), pe
