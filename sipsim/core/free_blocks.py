"""A first-fit allocator of a memory's addresses: for tensors in HBM, for handles in a TCM."""

from bisect import bisect_right


class FreeBlocks:
    """The free parts of a memory: (offset, bytes) in order, no two of them adjacent."""

    def __init__(self, nbytes: int) -> None:
        self._blocks = [(0, nbytes)] if nbytes else []

    def find(self, nbytes: int) -> int | None:
        """The index of the first block of at least ``nbytes``."""
        return next((index for index, (_, size) in enumerate(self._blocks) if nbytes <= size), None)

    def take(self, index: int, nbytes: int) -> tuple[int, int]:
        """The offset and size of what is cut off block ``index`` for ``nbytes``."""
        offset, size = self._blocks[index]
        taken = min(nbytes, size)
        self._blocks[index : index + 1] = [(offset + taken, size - taken)] if size > taken else []
        return offset, taken

    def take_pieces(self, nbytes: int) -> list[tuple[int, int]]:
        """Take ``nbytes``, which must be free, from the first block that holds them, or else from the first blocks in
        turn: (offset, bytes) of each piece.
        """
        found = self.find(nbytes)
        if found is not None:
            return [self.take(found, nbytes)]
        pieces = []
        while nbytes:
            pieces.append(self.take(0, nbytes))
            nbytes -= pieces[-1][1]
        return pieces

    def give(self, offset: int, size: int) -> None:
        """Return a block, joined with its free neighbours."""
        first = last = bisect_right(self._blocks, (offset, 0))
        if first and sum(self._blocks[first - 1]) == offset:
            first -= 1
            offset, size = self._blocks[first][0], self._blocks[first][1] + size
        if last < len(self._blocks) and offset + size == self._blocks[last][0]:
            size += self._blocks[last][1]
            last += 1
        self._blocks[first:last] = [(offset, size)]

    def sizes(self) -> list[int]:
        """Bytes of each block."""
        return [size for _, size in self._blocks]
