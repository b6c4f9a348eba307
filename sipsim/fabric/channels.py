"""Virtual channels of edges (ADR-0023 D8 and D18), and their weights."""

from dataclasses import dataclass
from typing import NamedTuple

from sipsim.fabric.graph import Framing

COMPUTE, COMM, CREDIT = 0, 1, 2
"""Numbers of ``vc_compute``, ``vc_comm``, and the optional credit channel (ADR-0023 D18)."""


class Arbitration(NamedTuple):
    """Arbitration among channels. ``weights``: relative bandwidths; 0: strict priority, the lower channel first.

    With one weight, all channels are one. ``chunk_bytes``: the packet of the packet model (ADR-0023 D8).
    """

    chunk_bytes: int
    weights: tuple[int, ...]

    def check(self) -> None:
        """Check that channels can be arbitrated.

        Raises:
            ValueError: for no channel, a negative weight, or a chunk without bytes.
        """
        if self.chunk_bytes < 1:
            raise ValueError(f"a chunk has at least a byte, not {self.chunk_bytes}")
        if not self.weights or min(self.weights) < 0:
            raise ValueError(f"each channel has a weight of 0 or more, not {self.weights}")

    def queue_of(self, vc: int) -> int:
        """Return the channel whose weight applies to ``vc``: itself, or the only channel.

        Raises:
            ValueError: for a channel without a weight.
        """
        weights = self.weights
        if len(weights) == 1:
            return 0
        if not 0 <= vc < len(weights):
            raise ValueError(f"channel {vc} has no weight among {weights}")
        return vc


@dataclass(frozen=True)
class ChunkFraming(Framing):
    """Framing of a wire on which each chunk has a header; ``around``: a further framing of chunks, such as flits."""

    chunk_bytes: int
    header_bytes: int
    around: Framing | None = None

    def wire_bytes(self, payload_bytes: int) -> int:
        """Return the bytes of a payload's chunks with their headers."""
        chunks_bytes = payload_bytes - -payload_bytes // self.chunk_bytes * self.header_bytes
        return chunks_bytes if self.around is None else self.around.wire_bytes(chunks_bytes)


ONE_QUEUE = Arbitration(256, (1,))
