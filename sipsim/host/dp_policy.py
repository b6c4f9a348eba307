"""How a tensor is laid out over the cubes and PEs of a SIP."""

from dataclasses import dataclass

CUBE_LAYOUTS = ("row_wise",)
PE_LAYOUTS = ("replicate",)


@dataclass(frozen=True)
class DPPolicy:
    """``cube="row_wise"``: the rows are split over ``num_cubes`` cubes in equal blocks, in order (ADR-0032 D2).

    ``pe="replicate"`` with ``num_pes=1``: each block lies in the HBM of the lead PE of its cube.

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
                raise ValueError(f"DPPolicy {name}={value!r} is not available; allowed: {', '.join(allowed)}")
        if self.num_pes != 1:
            raise ValueError(f"DPPolicy num_pes={self.num_pes} is not available; allowed: 1")
        if self.num_cubes < 1:
            raise ValueError(f"DPPolicy num_cubes={self.num_cubes}: must be at least 1")
