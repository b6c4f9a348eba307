"""A TLB: the translations that were used last, fully associative, the least recently used one leaves."""

Key = tuple[int, int]
"""The serial of a mapping and the number of a page."""


class Tlb:
    """At most ``entries`` translations."""

    def __init__(self, entries: int) -> None:
        self._entries = entries
        self._held: dict[Key, None] = {}

    def __len__(self) -> int:
        return len(self._held)

    def touch(self, key: Key) -> bool:
        """Use a translation; whether it was there. If not, it is from now on."""
        held = self._held
        was_there = key in held
        if was_there:
            del held[key]
        elif len(held) == self._entries:
            del held[next(iter(held))]
        held[key] = None
        return was_there

    def drop(self, serial: int) -> None:
        """Forget a mapping, which ends."""
        for key in [key for key in self._held if key[0] == serial]:
            del self._held[key]
