"""Virtual channels of edges (ADR-0023 D8 and D18), and their weights."""

from dataclasses import dataclass
from typing import NamedTuple

from sipsim.fabric.graph import Framing

COMPUTE, COMM, CREDIT = 0, 1, 2
"""Numbers of ``vc_compute``, ``vc_comm``, and the optional credit channel (ADR-0023 D18)."""


class Arbitration(NamedTuple):
    """Arbitration among virtual channels, in chunks of ``chunk_bytes`` (ADR-0023 D8). ``weights``: relative bandwidths;
    a channel of weight 0 has strict priority, the lowest number first. With one weight, all channels share a queue.
    """

    chunk_bytes: int
    weights: tuple[int, ...]

    def check(self) -> None:
        """Check that the values can be used.

        Raises:
            ValueError: if there is no weight, a weight is negative, or ``chunk_bytes`` is less than 1.
        """
        if self.chunk_bytes < 1:
            raise ValueError(f"chunk_bytes is {self.chunk_bytes}; must be at least 1 byte")
        if not self.weights or min(self.weights) < 0:
            raise ValueError(f"weights is {self.weights}; must contain a weight of 0 or more for each channel")

    def weighted_channel(self, vc: int) -> int:
        """Return the channel whose weight applies to ``vc``: ``vc`` itself, or 0 if there is only one weight.

        Raises:
            ValueError: for a channel without a weight.
        """
        weights = self.weights
        if len(weights) == 1:
            return 0
        if not 0 <= vc < len(weights):
            raise ValueError(f"virtual channel {vc} has no weight in {weights}; use one from 0 to {len(weights) - 1}")
        return vc


@dataclass(frozen=True)
class ChunkFraming(Framing):
    """Framing of a wire whose chunks have headers; ``around``: a framing around these, such as flits, or None."""

    chunk_bytes: int
    header_bytes: int
    around: Framing | None = None

    def wire_bytes(self, payload_bytes: int) -> int:
        """Return the bytes on the wire for a payload: its chunks with their headers, framed by ``around``."""
        chunks_bytes = payload_bytes - -payload_bytes // self.chunk_bytes * self.header_bytes
        return chunks_bytes if self.around is None else self.around.wire_bytes(chunks_bytes)


ONE_QUEUE = Arbitration(256, (1,))
