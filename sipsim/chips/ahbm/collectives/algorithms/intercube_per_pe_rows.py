"""A row a PE: every row of all PEs, cubes and ranks becomes the sum of all of them.

For tensors with ``DPPolicy(cube="row_wise", pe="row_wise", num_pes=...)`` on all PEs, which ADR-0032 leaves out. The
PEs of a cube are joined in a ring over its NoC, the first axis of each unit; cube mesh and SIPs follow as in
:mod:`.intercube_hierarchical`. Units have owners among all PEs of all cubes.

**Bytes.** Payload ``S`` a row, ``P`` PEs: in a cube ``(P-1)/P * S`` in each direction between neighbours of the ring.
What a cube exchanges with others is one row, as in :mod:`.intercube_hierarchical`.
"""

from sipsim.chips.ahbm.collectives.cube_trees import TOPO_NAME_TO_KIND, Form, Rows, kernel

__all__ = ["LAYOUT", "RANK_IDENTICAL", "TOPO_NAME_TO_KIND", "kernel", "kernel_args", "neighbors", "reference"]

RANK_IDENTICAL = True
LAYOUT = ("row_wise", "row_wise")
_FORM = Form(Rows.OF_PES, rotates=True)
kernel_args, neighbors, reference = _FORM.kernel_args, _FORM.neighbors, _FORM.reference
