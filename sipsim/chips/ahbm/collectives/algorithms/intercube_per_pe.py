"""Rows divided by columns over the PEs of a cube: each PE combines its piece with the same PE of all other cubes.

For tensors with ``DPPolicy(cube="row_wise", pe="column_wise", num_pes=...)`` on all PEs, a layout outside ADR-0032.
Every row, one per cube, becomes the sum of all rows of all ranks. Each PE is a separate lane with its piece in its HBM;
PEs of one cube exchange nothing. A lane runs the trees of :mod:`.intercube_hierarchical`; all lanes together put the
same bytes on the links. Each HBM reads and writes only a part of the row.
"""

from sipsim.chips.ahbm.collectives.cube_trees import TOPO_NAME_TO_KIND, Rows, TreeHooks, kernel

__all__ = ["LAYOUT", "RANK_IDENTICAL", "TOPO_NAME_TO_KIND", "kernel", "kernel_args", "neighbors", "reference"]

RANK_IDENTICAL = True
LAYOUT = ("row_wise", "column_wise")
_HOOKS = TreeHooks(Rows.IN_PIECES, rotates=True)
kernel_args, neighbors, reference = _HOOKS.kernel_args, _HOOKS.neighbors, _HOOKS.reference
