"""One row per PE: every row of all PEs, cubes and ranks becomes the sum of all rows.

For tensors with ``DPPolicy(cube="row_wise", pe="row_wise", num_pes=...)`` on all PEs, a layout outside ADR-0032. The
PEs of a cube form a ring over its NoC, the first axis of each unit; the axes of the cube mesh and of the SIPs follow as
in :mod:`.intercube_hierarchical`. The owners of units are the PEs of all cubes.

**Bytes.** For rows of ``S`` bytes and ``P`` PEs per cube: ``(P-1)/P * S`` per direction between neighbours of the ring.
A cube exchanges one row with other cubes, as in :mod:`.intercube_hierarchical`.
"""

from sipsim.chips.ahbm.collectives.cube_trees import TOPO_NAME_TO_KIND, Rows, TreeHooks, kernel

__all__ = ["LAYOUT", "RANK_IDENTICAL", "TOPO_NAME_TO_KIND", "kernel", "kernel_args", "neighbors", "reference"]

RANK_IDENTICAL = True
LAYOUT = ("row_wise", "row_wise")
_HOOKS = TreeHooks(Rows.OF_PES, rotates=True)
kernel_args, neighbors, reference = _HOOKS.kernel_args, _HOOKS.neighbors, _HOOKS.reference
