"""Names of the virtual channels of an edge, and how it is shared between them (ADR-0023 D8, D18)."""

from typing import NamedTuple

COMPUTE, COMM, CREDIT = 0, 1, 2


class Arbitration(NamedTuple):
    """``chunk_bytes`` of wire a turn's chunk has; ``weights``: chunks a turn, per channel, 0 for strict priority."""

    chunk_bytes: int
    weights: tuple[int, ...]
