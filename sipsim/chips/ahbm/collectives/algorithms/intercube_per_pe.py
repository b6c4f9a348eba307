"""Rows that the PEs of their cube divide by columns: each PE combines its piece with the same PE of all other cubes.

For tensors with ``DPPolicy(cube="row_wise", pe="column_wise", num_pes=...)`` on all PEs, which ADR-0032 leaves out.
Every row, one a cube, becomes the sum of all rows of all ranks. Each PE is a lane of its own, with its piece in its own
HBM; within a cube nothing is exchanged. What a lane does is :mod:`.intercube_hierarchical`'s, with its bytes over all
links together; each HBM reads and writes a part of the row only.
"""

from sipsim.chips.ahbm.collectives.cube_trees import TOPO_NAME_TO_KIND, Form, Rows, kernel

__all__ = ["LAYOUT", "RANK_IDENTICAL", "TOPO_NAME_TO_KIND", "kernel", "kernel_args", "neighbors", "reference"]

RANK_IDENTICAL = True
LAYOUT = ("row_wise", "column_wise")
_FORM = Form(Rows.IN_PIECES, rotates=True)
kernel_args, neighbors, reference = _FORM.kernel_args, _FORM.neighbors, _FORM.reference
