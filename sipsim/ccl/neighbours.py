"""Who is whose neighbour, by direction name: tables from a rank to ``{direction: rank}``, and the way back.

A rank here is a PE that takes part in IPCQ (``Plan.places``), not a rank of the process group. The built-in tables
are in :mod:`sipsim.ccl.tables`.
"""

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
"""ADR-0025 D1, with the inter-SIP names of ADR-0032 D3."""

RECEIVES_IN = {**OPPOSITE, "child_left": "parent", "child_right": "parent"}
"""Where a rank that has no way back receives what comes by a direction; in a direction of the same name if none."""

NeighbourMap = dict[str, int]
NeighbourTable = dict[int, NeighbourMap]


def reverse_direction(table: NeighbourTable, rank: int, peer: int, direction: str) -> str | None:
    """The peer's direction that leads back to ``rank``: the opposite one when it does, else any that does.

    ADR-0025 D1. With two SIPs in a ring both directions lead to the same peer, and only the preference for
    the opposite tells them apart. A direction whose opposite leads from ``rank`` to the peer is that one's partner
    and no other's: so a map from which a direction was dropped pairs like the whole one. None when nothing is left.
    """
    theirs = table[peer]
    opposite = OPPOSITE.get(direction)
    if opposite is not None and theirs.get(opposite) == rank:
        return opposite
    partners = {OPPOSITE[other] for other, target in table[rank].items() if target == peer and other in OPPOSITE}
    return next((d for d, target in theirs.items() if target == rank and d not in partners), None)
