"""The virtual channels of ADR-0023 D8 and D18, and their weights at an edge."""

from typing import NamedTuple

COMPUTE, COMM, CREDIT = 0, 1, 2
"""``vc_compute``, ``vc_comm``, and the optional credit channel of ADR-0023 D18."""


class Arbitration(NamedTuple):
    """``weights``: bandwidth of each channel relative to the others; 0 is strict priority, the lower channel first.

    With one weight, all channels are one. ``chunk_bytes``: the packet of the packet model (ADR-0023 D8).
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
        """The channel whose weight counts for ``vc``: itself, or the only one.

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
