"""ADR-0032's five phases as a pipeline: reduce to a root cube, exchange between SIPs, broadcast back, all at once.

Rows of the cube mesh are reduced towards the root's column from both sides, this column is reduced towards the root,
the roots exchange, and the results are broadcast in reverse. A row is sent in units of at most a slot, each one round
after the previous unit, so that all phases overlap. Between SIPs, a unit is combined towards an owner SIP, on a ring
from both sides, and sent back. The owner, the longer arm and, on a grid of SIPs, the order of the axes rotate by unit.

``root_cube`` may be any cube; ``auto`` and null select the cube with the shortest estimated time
(:mod:`sipsim.chips.ahbm.collectives.cube_trees`). All phases use the ports of one PE per cube; the root's ports carry
``2 + arms + 2(n-1)/n`` rows per direction. With ``rank_per: pe`` all PEs of a cube share its row.

**Bytes.** For rows of ``S`` bytes and ``n`` SIPs, a unit takes ``n - 1`` hops to its owner and as many back. So a link
of a ring carries ``(n-1)/n * S`` per direction, and a link of a ``w x h`` torus ``(w-1)/w * (1 + 1/h) * S / 2`` along
x, if the units are a multiple of ``2n`` (torus: ``4n``). On a mesh or line, half of the link directions carry less.

It runs on SIPs in rings, tori and meshes, and on ``custom`` lines and rings along ports E and W.
"""

from typing import TYPE_CHECKING

from sipsim.chips.ahbm.collectives.cube_trees import TOPO_NAME_TO_KIND, Rows, TreeHooks, kernel

if TYPE_CHECKING:
    from sipsim.chips.ahbm.system import AhbmSystem

__all__ = [
    "LAYOUT",
    "RANK_IDENTICAL",
    "TOPO_NAME_TO_KIND",
    "kernel",
    "kernel_args",
    "neighbors",
    "reference",
    "root_cube",
]

RANK_IDENTICAL = True
LAYOUT = ("row_wise", "replicate")
_HOOKS = TreeHooks(Rows.OF_CUBES, rotates=False)
kernel_args, neighbors, reference = _HOOKS.kernel_args, _HOOKS.neighbors, _HOOKS.reference


def root_cube(system: "AhbmSystem") -> None:
    """Return None: any cube may be configured."""
