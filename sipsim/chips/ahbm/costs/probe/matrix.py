"""Matrices of the time of the send/recv pair, from the sums of :mod:`sipsim.chips.ahbm.costs.probe.probe`."""

from typing import NamedTuple

from sipsim.chips.ahbm.address import LEAD_PE, PePlace
from sipsim.chips.ahbm.costs.probe.probe import Probe, ProbePlan, Ps


class Matrix(NamedTuple):
    """``ps[row][column]``: from the PE of the row to that of the column, None where they are the same."""

    title: str
    rows: list[PePlace]
    columns: list[PePlace]
    ps: list[list[Ps | None]]

    def pairs(self) -> list[tuple[Ps, PePlace, PePlace]]:
        """Each pair with its time, in order of its PEs."""
        return [
            (ps, src, dst)
            for src, row in zip(self.rows, self.ps, strict=True)
            for dst, ps in zip(self.columns, row, strict=True)
            if ps is not None
        ]


def sip_matrix(plan: ProbePlan, nbytes: int) -> Matrix:
    """The lead PEs of the cubes 0 of all SIPs."""
    leads = [PePlace(sip, 0, LEAD_PE) for sip in range(plan.system.n_sips)]
    return _matrix(plan, nbytes, "from each SIP (row) to each SIP (column)", leads, leads)


def cube_matrix(plan: ProbePlan, nbytes: int, src_sip: int, dst_sip: int) -> Matrix:
    """The lead PEs of all cubes of one SIP, and of another or the same."""
    rows, columns = ([PePlace(sip, cube, LEAD_PE) for cube in range(plan.system.n_cubes)] for sip in (src_sip, dst_sip))
    title = f"from each cube of SIP {src_sip} (row) to each cube of SIP {dst_sip} (column)"
    return _matrix(plan, nbytes, title, rows, columns)


def _matrix(plan: ProbePlan, nbytes: int, title: str, rows: list[PePlace], columns: list[PePlace]) -> Matrix:
    def pair_ps(src: PePlace, dst: PePlace) -> Ps | None:
        return None if src == dst else Probe(plan, nbytes, plan.way_between(src, dst)).pair_ps()

    return Matrix(title, rows, columns, [[pair_ps(src, dst) for dst in columns] for src in rows])
