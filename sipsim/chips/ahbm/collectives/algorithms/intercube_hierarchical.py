"""All cubes reduce a part each: reduce-scatter over the cube mesh, exchange between SIPs on every cube, gather back.

A row is sent in units; the owners of successive units rotate over all cubes and SIPs. With ``rank_per: pe``, all PEs of
a cube are workers: each loads its share of the row from PE 0's HBM and combines it with the same PE of all other cubes
and SIPs. Half of the units are reduced along rows of the mesh first, half along columns, so that all links of the mesh
carry the same load; on a ring or torus of SIPs, both directions of all links carry the same load
(:mod:`sipsim.chips.ahbm.collectives.cube_trees`).

**Bytes.** For rows of ``S`` bytes, ``N`` cubes in a ``W x H`` mesh and ``n`` SIPs, a unit takes ``n - 1`` hops between
SIPs in each phase. So a link of a ring carries ``(n-1)/n * S`` per direction, and a link of a ``w x h`` torus
``((w-1)/w * (1 + 1/h)) * S / 2`` along x, if all owners have equally many units: rows with at least ``LEAST_BYTES`` for
each of the ``N * workers`` owners. A link between cubes carries ``(1 + 1/H) * S / 2`` along x, and the traffic between
cubes and ports.

It runs on the same SIP topologies as :mod:`.intercube_pipelined`.
"""

from sipsim.chips.ahbm.collectives.cube_trees import TOPO_NAME_TO_KIND, Rows, TreeHooks, kernel

__all__ = ["LAYOUT", "RANK_IDENTICAL", "TOPO_NAME_TO_KIND", "kernel", "kernel_args", "neighbors", "reference"]

RANK_IDENTICAL = True
LAYOUT = ("row_wise", "replicate")
_HOOKS = TreeHooks(Rows.OF_CUBES, rotates=True)
kernel_args, neighbors, reference = _HOOKS.kernel_args, _HOOKS.neighbors, _HOOKS.reference
