"""Neighbour tables, ``{rank: {direction: rank}}``, and the direction by which a peer answers.

A rank is a PE with queue pairs (``Plan.pe_of_rank``), not a rank of the process group. The built-in tables are in
:mod:`sipsim.collectives.tables`.
"""

from collections.abc import Mapping

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
"""ADR-0025 D1, with the inter-SIP names of ADR-0032 D3. An algorithm's ``opposites`` add to it."""

RECEIVES_IN = {"child_left": "parent", "child_right": "parent"}
"""The direction of a receive-only ring for a direction without an opposite; by default, the direction itself."""

NeighbourMap = dict[str, int]
NeighbourTable = dict[int, NeighbourMap]


def reverse_direction(
    table: NeighbourTable, rank: int, peer: int, direction: str, opposite: Mapping[str, str] = OPPOSITE
) -> str | None:
    """The peer's direction that leads back to ``rank``: the opposite if it does, else any that does, else None.

    ADR-0025 D1. With two SIPs in a ring both directions lead to the same peer, and only the preference for the
    opposite distinguishes them. A direction whose opposite also leads from ``rank`` to the peer is reserved for that
    opposite, so that a map from which one direction was dropped pairs like the whole map.
    """
    peer_map = table[peer]
    preferred = opposite.get(direction)
    if preferred is not None and peer_map.get(preferred) == rank:
        return preferred
    partners = {opposite[other] for other, target in table[rank].items() if target == peer and other in opposite}
    return next((d for d, target in peer_map.items() if target == rank and d not in partners), None)
