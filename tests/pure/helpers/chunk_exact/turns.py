"""Whose turn it is on an edge that virtual channels share, chunk by chunk.

Weighted round robin, without a clock: a channel sends as many chunks a turn as its weight says, one that has nothing to
send is skipped, and a channel of weight 0 goes before all others at every chunk boundary.
"""

from collections.abc import Sequence


class Turn:
    """Whose turn it is on one edge, and how many chunks are left of it."""

    __slots__ = ("left", "vc", "weights")

    def __init__(self, weights: tuple[int, ...]) -> None:
        self.weights = weights
        self.forget()

    def forget(self) -> None:
        """The edge idles, and remembers nothing of it."""
        self.vc, self.left = len(self.weights) - 1, 0

    def begin(self, vc: int) -> None:
        """A whole turn for ``vc``; a channel of strict priority takes nobody's turn."""
        if self.weights[vc]:
            self.vc, self.left = vc, self.weights[vc]

    def resume(self, vc: int, chunks: int) -> None:
        """As it stands when ``vc`` has been alone here and has sent so many chunks on end."""
        self.begin(vc)
        self.sent(vc, chunks)

    def sent(self, vc: int, chunks: int) -> None:
        """``vc`` has sent so many chunks on end: what is left of the last of its turns, 0 at a turn's end."""
        weight = self.weights[vc]
        if weight:
            self.left = self.left - chunks if chunks < self.left else -(chunks - self.left) % weight

    def choose(self, able: Sequence[int]) -> int:
        """Who of ``able``, in rising order and not empty, sends next; its turn begins if it was not its own."""
        strict = [vc for vc in able if not self.weights[vc]]
        if strict:
            return strict[0]
        if not self.left or self.vc not in able:
            self.begin(next((vc for vc in able if vc > self.vc), able[0]))
        return self.vc

    def yields(self, vc: int, to: int) -> bool | None:
        """What ``vc``, now sending, owes to ``to``, now waiting: its next chunk boundary, False: only its turn's end;
        None: nothing, as it goes before."""
        if self.weights[vc]:
            return not self.weights[to]
        return True if not self.weights[to] and to < vc else None
