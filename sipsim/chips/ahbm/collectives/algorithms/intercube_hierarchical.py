"""All cubes reduce a part each: reduce-scatter over the cube mesh, exchange between SIPs on every cube, gather back.

A row moves in units whose owners go round all cubes, SIPs and, with ``rank_per: pe``, PEs: each of the PEs of a cube
is a worker then, which takes its share of the row from PE 0's HBM and combines it with the same PE of all other cubes
and SIPs. Half of the units go along rows of the mesh first, half along columns, so that all links of the mesh carry
the same; on a ring or torus of SIPs both directions of all links do
(:mod:`sipsim.chips.ahbm.collectives.cube_trees`).

**Bytes.** Payload ``S`` a row, ``N`` cubes of a ``W x H`` mesh, ``n`` SIPs: a unit takes ``n - 1`` hops between SIPs
and as many back, so a link of a ring carries ``(n-1)/n * S`` in each direction, and one of a ``w x h`` torus
``((w-1)/w * (1 + 1/h)) * S / 2`` along x, if all owners have as many units: for rows of ``LEAST_BYTES`` and more for
each of the ``N * workers`` owners. Between cubes of a mesh it carries ``(1 + 1/H) * S / 2`` along x, beside
what is on its way to and from the ports.

It suits all SIP topologies that :mod:`.intercube_pipelined` does.
"""

from sipsim.chips.ahbm.collectives.cube_trees import TOPO_NAME_TO_KIND, Form, Rows, kernel

__all__ = ["LAYOUT", "RANK_IDENTICAL", "TOPO_NAME_TO_KIND", "kernel", "kernel_args", "neighbors", "reference"]

RANK_IDENTICAL = True
LAYOUT = ("row_wise", "replicate")
_FORM = Form(Rows.OF_CUBES, rotates=True)
kernel_args, neighbors, reference = _FORM.kernel_args, _FORM.neighbors, _FORM.reference
