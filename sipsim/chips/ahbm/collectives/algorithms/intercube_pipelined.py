"""ADR-0032's five phases as a pipeline: reduce to a root cube, exchange between SIPs, broadcast back, all at once.

Rows of the cube mesh are reduced towards the root's column from both sides, that column towards the root, the roots
exchange, and the results go back the same way. A row moves in units of at most a slot, each a round behind the one
before, so that all phases are at work. Between SIPs a unit is combined towards one of them, from both sides on a ring,
and sent back; that SIP, the arms and, on a grid of SIPs, the order of its axes go round by units.

``root_cube`` is any cube; with ``auto`` and null the one of the least time
(:mod:`sipsim.chips.ahbm.collectives.cube_trees`). The five phases pass through the ports of one PE a cube, and
the root's takes ``2 + arms + 2(n-1)/n`` rows of each direction; with ``rank_per: pe`` all PEs of a cube divide its row.

**Bytes.** Payload ``S`` a row, ``n`` SIPs: a unit takes ``n - 1`` hops to its SIP and as many back. So a link of a ring
carries ``(n-1)/n * S`` in each direction, and one of a ``w x h`` torus ``(w-1)/w * (1 + 1/h) * S / 2`` along x, if
units are a multiple of ``2n``, or ``4n`` on a torus. On a mesh, and a line, half of the links' directions carry less.

It suits SIPs in rings, tori and meshes, and ``custom`` lines and rings along ports E and W.
"""

from typing import TYPE_CHECKING

from sipsim.chips.ahbm.collectives.cube_trees import TOPO_NAME_TO_KIND, Form, Rows, kernel

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
_FORM = Form(Rows.OF_CUBES, rotates=False)
kernel_args, neighbors, reference = _FORM.kernel_args, _FORM.neighbors, _FORM.reference


def root_cube(system: "AhbmSystem") -> None:
    """Any cube may be configured."""
