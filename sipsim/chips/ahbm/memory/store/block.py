"""A block in memory: rows of bytes at equal distances, such as a tile of a matrix."""

from typing import NamedTuple


class Block(NamedTuple):
    """``rows`` rows of ``row_bytes`` each, the first at ``address``; from row to row are ``pitch`` bytes.

    ``pitch`` is at least ``row_bytes``. The bytes of a block are those of its rows, one after the other.
    """

    address: int
    rows: int
    row_bytes: int
    pitch: int

    @property
    def nbytes(self) -> int:
        """Bytes of all rows."""
        return self.rows * self.row_bytes

    @property
    def reach_bytes(self) -> int:
        """From the first to the last byte."""
        return (self.rows - 1) * self.pitch + self.row_bytes

    @property
    def is_contiguous(self) -> bool:
        """Whether it is one piece of memory."""
        return self.rows == 1 or self.pitch == self.row_bytes

    @property
    def addresses(self) -> range:
        """The first byte of each row."""
        return range(self.address, self.address + self.rows * self.pitch, self.pitch)
