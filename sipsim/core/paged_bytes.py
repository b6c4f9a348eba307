"""Sparse byte array: pages are allocated at their first write; bytes never written read as 0."""


class PagedBytes:
    """Sparse array of ``nbytes``; ``pages``: pages of ``page_bytes``, by number. The caller must check ranges."""

    __slots__ = ("nbytes", "page_bytes", "pages")

    def __init__(self, nbytes: int, page_bytes: int) -> None:
        self.nbytes = nbytes
        self.page_bytes = page_bytes
        self.pages: dict[int, bytearray] = {}

    def read(self, offset: int, nbytes: int) -> bytes:
        """Return a copy of ``nbytes`` bytes at ``offset``."""
        page, start = divmod(offset, self.page_bytes)
        if start + nbytes <= self.page_bytes:
            data = self.pages.get(page)
            return bytes(nbytes) if data is None else bytes(memoryview(data)[start : start + nbytes])
        first = self.page_bytes - start
        rest = range(first, nbytes, self.page_bytes)
        return b"".join(
            (self.read(offset, first), *(self.read(offset + i, min(self.page_bytes, nbytes - i)) for i in rest))
        )

    def write(self, offset: int, data: bytes | memoryview) -> None:
        """Write ``data`` at ``offset``, over any number of pages."""
        done, nbytes = 0, len(data)
        while done < nbytes:
            page, start = divmod(offset + done, self.page_bytes)
            part = min(self.page_bytes - start, nbytes - done)
            if page not in self.pages:
                self.pages[page] = bytearray(self.page_bytes)
            self.pages[page][start : start + part] = data if part == nbytes else data[done : done + part]
            done += part
