"""How a tensor is laid out over the cubes and PEs of a SIP."""

from dataclasses import dataclass

CUBE_LAYOUTS = ("row_wise", "replicate")
PE_LAYOUTS = ("replicate", "row_wise")
COLUMNS = "column_wise"

Place = tuple[int, int]
"""(cube, PE) of a SIP."""


@dataclass(frozen=True)
class DPPolicy:
    """The rows of a tensor over the first ``num_cubes`` cubes, and over the first ``num_pes`` PEs of each.

    ``row_wise``: split in equal blocks, in order (ADR-0032 D2). ``replicate``: a copy on each; with one PE that is the
    layout of ADR-0032, each cube's block in the HBM of its lead PE. Every PE has its blocks in its own slice of HBM.

    A kernel addresses a copy as it does the tensor: it gets that of its own PE, else the first of its cube, else the
    first of all. The host writes every copy and reads the first (``Tensor.copies`` has all).

    Raises:
        ValueError: for a layout that does not exist.
    """

    cube: str = "row_wise"
    pe: str = "replicate"
    num_cubes: int = 16
    num_pes: int = 1

    def __post_init__(self) -> None:
        for name, value, allowed in (("cube", self.cube, CUBE_LAYOUTS), ("pe", self.pe, PE_LAYOUTS)):
            if value not in allowed:
                hint = "; transpose the tensor and split its rows" if value == COLUMNS else ""
                raise ValueError(f"DPPolicy {name}={value!r} is not available; allowed: {', '.join(allowed)}{hint}")
        for name, count in (("num_cubes", self.num_cubes), ("num_pes", self.num_pes)):
            if count < 1:
                raise ValueError(f"DPPolicy {name}={count}: must be at least 1")

    def holders(self) -> list[list[Place]]:
        """Of each block of rows, in order, the PEs with a copy of it; the first has copy 0."""
        cubes, pes = _groups(self.cube, self.num_cubes), _groups(self.pe, self.num_pes)
        return [[(cube, pe) for cube in some_cubes for pe in some_pes] for some_cubes in cubes for some_pes in pes]

    def places(self) -> list[Place]:
        """All PEs that hold a part of the tensor."""
        return [(cube, pe) for cube in range(self.num_cubes) for pe in range(self.num_pes)]

    def cube_blocks(self) -> int:
        """Blocks of rows of which each cube has one."""
        return len(_groups(self.cube, self.num_cubes))

    def sharers(self) -> str:
        """Who shares the rows, in words."""
        cubes = f"{self.num_cubes} cubes" if self.cube == "row_wise" else ""
        pes = f"{self.num_pes} PEs" if self.pe == "row_wise" and self.num_pes > 1 else ""
        return " of ".join(filter(None, (cubes, pes)))


def _groups(layout: str, count: int) -> list[list[int]]:
    """Those with the same rows, in the order of the rows."""
    return [list(range(count))] if layout == "replicate" else [[each] for each in range(count)]
