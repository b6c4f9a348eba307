"""First-fit allocator of memory addresses, for tensors in HBM and for handles in a TCM."""

from bisect import bisect_right


class FreeBlocks:
    """Free list of a memory: (offset, bytes) of each free block in order of address; adjacent blocks are merged."""

    def __init__(self, nbytes: int) -> None:
        self._blocks = [(0, nbytes)] if nbytes else []

    def find(self, nbytes: int) -> int | None:
        """Return the index of the first block of at least ``nbytes``; None if no block is large enough."""
        return next((index for index, (_, size) in enumerate(self._blocks) if nbytes <= size), None)

    def take(self, index: int, nbytes: int) -> tuple[int, int]:
        """Allocate the first ``nbytes`` of block ``index``, or the whole block if smaller; return (offset, bytes)."""
        offset, size = self._blocks[index]
        taken = min(nbytes, size)
        self._blocks[index : index + 1] = [(offset + taken, size - taken)] if size > taken else []
        return offset, taken

    def allocate_pieces(self, nbytes: int) -> list[tuple[int, int]]:
        """Allocate ``nbytes``, which must be free, in the first block that is large enough; without such a block, in
        pieces from the first blocks on. Return (offset, bytes) of each piece.
        """
        index = self.find(nbytes)
        if index is not None:
            return [self.take(index, nbytes)]
        pieces = []
        while nbytes:
            pieces.append(self.take(0, nbytes))
            nbytes -= pieces[-1][1]
        return pieces

    def free(self, offset: int, size: int) -> None:
        """Free a block and merge it with free neighbours."""
        first = last = bisect_right(self._blocks, (offset, 0))
        if first and sum(self._blocks[first - 1]) == offset:
            first -= 1
            offset, size = self._blocks[first][0], self._blocks[first][1] + size
        if last < len(self._blocks) and offset + size == self._blocks[last][0]:
            size += self._blocks[last][1]
            last += 1
        self._blocks[first:last] = [(offset, size)]

    def sizes(self) -> list[int]:
        """Return the bytes of each free block."""
        return [size for _, size in self._blocks]
