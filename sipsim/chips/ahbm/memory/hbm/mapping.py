"""Which burst of a slice is where: address bits choose pseudo channel, channel, bank group, bank, column and row.

Of the offset within a PE's slice, from the lowest bit:

    burst (5 bits: 32 B) | bank group | pseudo channel (1) | channel | column (row / 32 B) | bank | row

So a sequential stream takes turns between bank groups (tCCD_S, not tCCD_L), then between the pseudo channels of the
slice, and stays in open rows for ``groups * row_bytes`` a pseudo channel. All bursts of a slice with equal bank and row
bits are a *stripe*: a row of one bank in each bank group of each pseudo channel.
"""

from collections.abc import Iterator
from typing import NamedTuple

from sipsim.chips.ahbm.memory.presets import BURST_BYTES, PSEUDO_CHANNELS, Preset


class Piece(NamedTuple):
    """The bursts of an access in one stripe, numbered from its start: ``first`` to ``end``, which is not in it."""

    bank: int
    row: int
    first: int
    end: int


class Mapping:
    """A slice of ``channels``, a power of two, of a device."""

    def __init__(self, preset: Preset, channels: int) -> None:
        self.pseudo_channels = channels * PSEUDO_CHANNELS
        self.groups = preset.groups
        self.line = preset.groups * self.pseudo_channels
        """Bursts after which the same bank is next."""
        self._stripe = self.line * (preset.row_bytes // BURST_BYTES)
        self._banks = preset.banks_per_group

    def pieces(self, first: int, end: int) -> Iterator[Piece]:
        """The bursts from ``first`` to before ``end``, stripe by stripe."""
        stripe = self._stripe
        while first < end:
            number, at = divmod(first, stripe)
            stop = min(at + end - first, stripe)
            row, bank = divmod(number, self._banks)
            yield Piece(bank, row, at, stop)
            first += stop - at

    def even_pieces(self, first: int, end: int) -> list[tuple[int, int, int]]:
        """Of bursts that are the same in all pseudo channels: (bank, row, bursts in each), stripe by stripe."""
        number, at = divmod(first, self._stripe)
        if at + end - first <= self._stripe:
            return [(number % self._banks, number // self._banks, (end - first) // self.pseudo_channels)]
        pieces, channels = self.pieces(first, end), self.pseudo_channels
        return [(piece.bank, piece.row, (piece.end - piece.first) // channels) for piece in pieces]

    def share(self, piece: Piece, number: int) -> tuple[int, int]:
        """Of a piece, the bank group of the first burst in pseudo channel ``number``, and how many are there."""
        groups, line = self.groups, self.line
        begin = number * groups
        before, first = divmod(piece.first, line)
        lines, end = divmod(piece.end, line)
        skipped = min(max(first - begin, 0), groups)
        count = (lines - before) * groups + min(max(end - begin, 0), groups) - skipped
        return skipped % groups, count

    def shares(self, first: int, end: int) -> Iterator[tuple[Piece, int, int, int]]:
        """The bursts from ``first`` to before ``end`` by stripe and pseudo channel: (piece, number, group, bursts)."""
        for piece in self.pieces(first, end):
            for number in range(self.pseudo_channels):
                group, count = self.share(piece, number)
                if count:
                    yield piece, number, group, count
