"""The virtual channels of ADR-0023 D8 and D18, and how transfers divide an edge that they share.

Pure arithmetic on parts of an edge. When an edge is divided anew is decided in :mod:`sipsim.fabric.noc.edges`.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

COMPUTE, COMM, CREDIT = 0, 1, 2
"""``vc_compute``, ``vc_comm``, and the optional credit channel of ADR-0023 D18."""
EDGE = 1 << 40
"""The whole bandwidth of an edge; parts of it are integers."""


class Arbitration(NamedTuple):
    """``weights``: bandwidth of each channel relative to the others; 0 is strict priority, the lower channel first.

    ``chunk_bytes``: the grain of hardware's arbitration, which bounds how exact shared times are. With one weight, all
    channels are one queue.
    """

    chunk_bytes: int
    weights: tuple[int, ...]

    def check(self) -> None:
        """Check that channels can be arbitrated.

        Raises:
            ValueError: no channel, a negative weight, or a chunk without bytes.
        """
        if self.chunk_bytes < 1:
            raise ValueError(f"a chunk has at least a byte, not {self.chunk_bytes}")
        if not self.weights or min(self.weights) < 0:
            raise ValueError(f"each channel has a weight of 0 or more, not {self.weights}")

    def queue_of(self, vc: int) -> int:
        """The queue that a channel waits in: its own, or the only one.

        Raises:
            ValueError: a channel without weight.
        """
        weights = self.weights
        if len(weights) == 1:
            return 0
        if not 0 <= vc < len(weights):
            raise ValueError(f"channel {vc} has no weight among {weights}")
        return vc


ONE_QUEUE = Arbitration(256, (1,))


class Want(NamedTuple):
    """What one transfer asks of an edge: up to ``part`` of it, on channel ``vc``.

    ``is_fixed``: its end is told, so it gets its part before all others. ``is_here``: bytes of it wait, so that later
    ones of its channel must not pass it, though it may get less than it could use.
    """

    vc: int
    part: int
    is_fixed: bool = False
    is_here: bool = False


@lru_cache(maxsize=4096)
def divide(wants: tuple[Want, ...], weights: tuple[int, ...]) -> tuple[int, ...]:
    """The part of an edge that each transfer gets, in the order of their heads. Kept: most meetings are alike.

    First those whose end is fixed; then strict channels; the others by weight, where a channel that wants less than its
    share leaves the rest to the others. Within a channel the earlier transfer takes all that it wants, and later ones
    get nothing behind bytes that wait.
    """
    parts = [0] * len(wants)
    left = EDGE
    asked = [0] * len(weights)
    waiting = []
    closed = set()
    for index, want in enumerate(wants):
        if want.is_fixed:
            parts[index] = min(want.part, left)
            left -= parts[index]
        elif want.vc not in closed:
            asked[want.vc] += want.part
            waiting.append(index)
        if want.is_here:
            closed.add(want.vc)
    granted = asked if sum(asked) <= left else _by_channel(asked, weights, left)
    for index in waiting:
        want = wants[index]
        parts[index] = min(want.part, granted[want.vc])
        granted[want.vc] -= parts[index]
    return tuple(parts)


def _by_channel(asked: list[int], weights: Sequence[int], left: int) -> list[int]:
    """The part of each channel: water-filling by weight, after strict priority."""
    granted = [0] * len(weights)
    open_channels = []
    for vc, weight in enumerate(weights):
        if weight:
            if asked[vc]:
                open_channels.append(vc)
        else:
            granted[vc] = min(asked[vc], left)
            left -= granted[vc]
    total = sum(weights[vc] for vc in open_channels)
    while open_channels:
        modest = [vc for vc in open_channels if asked[vc] * total <= left * weights[vc]]
        if not modest:
            for vc in open_channels:
                granted[vc] = left * weights[vc] // total
            break
        for vc in modest:
            granted[vc] = asked[vc]
            open_channels.remove(vc)
        left -= sum(asked[vc] for vc in modest)
        total -= sum(weights[vc] for vc in modest)
    return granted
