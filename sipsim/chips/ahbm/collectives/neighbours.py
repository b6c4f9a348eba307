"""Neighbour tables, ``{rank: {direction: rank}}``, their registry, and the pairing of directions of two peers.

A rank is a PE in the wiring (``Plan.pe_of_rank``), not a rank of the process group. No rank is its own neighbour. Ranks
in a square are numbered row by row from the north-west: rank = row * width + column. Rank 0 is the root of a tree.
"""

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from sipsim.core.registry import Registry

if TYPE_CHECKING:
    from sipsim.chips.ahbm.system import AhbmSystem

OPPOSITE = {
    "E": "W",
    "W": "E",
    "N": "S",
    "S": "N",
    "global_E": "global_W",
    "global_W": "global_E",
    "global_N": "global_S",
    "global_S": "global_N",
}
"""Opposite directions: ADR-0025 D1, with the inter-SIP names of ADR-0032 D3. An algorithm's ``opposites`` are added."""

RECEIVES_IN = {"child_left": "parent", "child_right": "parent"}
"""Names of receive-only rings for directions without an opposite; the default is the sender's direction."""

NeighbourMap = dict[str, int]
NeighbourTable = dict[int, NeighbourMap]


def reverse_direction(
    table: NeighbourTable, rank: int, peer: int, direction: str, opposite: Mapping[str, str] = OPPOSITE
) -> str | None:
    """Return the peer's direction back to ``rank``: preferably the opposite, else another direction, else None.

    Preference: ADR-0025 D1. With two SIPs in a ring both directions lead to the same peer, and only this preference
    distinguishes them. A direction whose opposite also leads from ``rank`` to the peer is reserved for this opposite,
    so that pairs do not change if one direction is removed from a map.
    """
    peer_map = table[peer]
    preferred = opposite.get(direction)
    if preferred is not None and peer_map.get(preferred) == rank:
        return preferred
    partners = {opposite[other] for other, target in table[rank].items() if target == peer and other in opposite}
    return next((d for d, target in peer_map.items() if target == rank and d not in partners), None)


Builder = Callable[[int, int], NeighbourMap]
NeighboursHook = Callable[[int, int, NeighbourMap, "AhbmSystem"], NeighbourMap]


class Table(NamedTuple):
    """Neighbour table. ``build(rank, size)`` returns the neighbours of one rank.

    ``square``: the number of ranks must be a square. ``one_way``: the opposite of a direction only receives.
    ``self_wired``: the table is empty; neighbours are those of the module's ``neighbors()``, or of hook ``default`` for
    a module without ``neighbors()``. If ``default`` is None, the module must export ``neighbors()`` (ADR-0023 F4).
    """

    build: Builder
    square: bool = False
    one_way: bool = False
    self_wired: bool = False
    default: NeighboursHook | None = None

    def refuses(self, size: int, most: int) -> str | None:
        """Return why the table cannot wire ``size`` ranks, and the nearest valid sizes <= ``most``; None if it can."""
        side = math.isqrt(size)
        if not self.square or side * side == size:
            return None
        squares = [str(n * n) for n in (side, side + 1) if n * n <= most]
        return f"needs a square number of ranks, and there are {size}; set world_size to {' or '.join(squares)}"


TABLES: Registry[Table] = Registry(
    "neighbour table",
    {
        "sipsim.chips.ahbm.collectives.neighbours": (
            "torus_2d",
            "mesh_2d",
            "mesh_2d_no_wrap",
            "custom",
            "none",
            "ring_1d",
            "ring_1d_unidir",
            "tree_binary",
        )
    },
)


def table(
    name: str,
    *,
    square: bool = False,
    one_way: bool = False,
    self_wired: bool = False,
    default: NeighboursHook | None = None,
) -> Callable[[Builder], Builder]:
    """Decorator that registers a builder as the table ``name``; may be applied several times."""

    def add(build: Builder) -> Builder:
        TABLES.register(name, build)(Table(build, square, one_way, self_wired, default))
        return build

    return add


STEPS = {"N": (0, -1), "S": (0, 1), "E": (1, 0), "W": (-1, 0)}


@table("mesh_2d", square=True)
@table("torus_2d", square=True)
def wrapping_grid(rank: int, size: int) -> NeighbourMap:
    """N, S, E, W with wrap-around in both dimensions, as in ADR-0023 D3. In 2 x 2 each neighbour is connected twice."""
    side = math.isqrt(size)
    x, y = rank % side, rank // side
    if side == 1:
        return {}
    return {name: (y + dy) % side * side + (x + dx) % side for name, (dx, dy) in STEPS.items()}


@table("mesh_2d_no_wrap", square=True)
def mesh_2d_no_wrap(rank: int, size: int) -> NeighbourMap:
    """N, S, E, W; a rank at an edge has no neighbour beyond it."""
    side = math.isqrt(size)
    x, y = rank % side, rank // side
    steps = {name: (x + dx, y + dy) for name, (dx, dy) in STEPS.items()}
    return {name: v * side + u for name, (u, v) in steps.items() if 0 <= u < side and 0 <= v < side}


@table("ring_1d")
def ring_1d(rank: int, size: int) -> NeighbourMap:
    """E to the next rank, W to the previous (ADR-0023 D3). Two ranks are connected twice; a single rank has none."""
    return {"E": (rank + 1) % size, "W": (rank - 1) % size} if size > 1 else {}


@table("ring_1d_unidir", one_way=True)
def ring_1d_unidir(rank: int, size: int) -> NeighbourMap:
    """E to the next rank (ADR-0023 D11). Direction W of a rank only receives."""
    return {"E": (rank + 1) % size} if size > 1 else {}


@table("tree_binary")
def tree_binary(rank: int, size: int) -> NeighbourMap:
    """parent, child_left, child_right (ADR-0023 D11), filled level by level: the children of r are 2r+1 and 2r+2."""
    parent = {"parent": (rank - 1) // 2} if rank else {}
    children = {"child_left": 2 * rank + 1, "child_right": 2 * rank + 2}
    return parent | {name: child for name, child in children.items() if child < size}


def intercube_multisip(rank: int, world_size: int, neighbor_map: NeighbourMap, system: "AhbmSystem") -> NeighbourMap:
    """Neighbours of a cube's lead PE: the mesh neighbours, and the same cube on neighbouring SIPs (ADR-0032 D3).

    Rank = sip * n_cubes + cube. The cube mesh does not wrap; ``global_X`` leads to the SIP behind port X.

    Raises:
        ValueError: the ranks are not all cubes of all SIPs.
    """
    resolved = system.resolved.ccl
    per = resolved.algorithms[resolved.defaults.algorithm].rank_per
    if per not in (None, "cube") or world_size != system.n_sips * system.n_cubes:
        raise ValueError("every cube takes part; set rank_per and world_size to null")
    sip, cube = divmod(rank, system.n_cubes)
    width, height = system.cube_mesh
    x, y = cube % width, cube // width
    found = {
        direction: rank + dy * width + dx
        for direction, (dx, dy) in STEPS.items()
        if 0 <= x + dx < width and 0 <= y + dy < height
    }
    for port in STEPS:
        far = system.far_ends.get((sip, port))
        if far is not None:
            found[f"global_{port}"] = far.sip * system.n_cubes + cube
    return found


@table("custom", self_wired=True)
@table("none", self_wired=True, default=intercube_multisip)
def none(rank: int, size: int) -> NeighbourMap:
    """No table: neighbors() of the module; ``none`` without this hook wires all cubes (ADR-0023 D11, ADR-0032 D6)."""
    return {}
