"""Room for the receive rings of process groups in the TCM: a window a group, the same on every PE of a SIP. Pure.

Every rank derives the windows of all SIPs alike, since all ranks make and destroy groups in one order; so a sender
knows the address of its peer's ring without asking. Inside its window a group takes and gives back room for each of
its wirings, in the order of its calls, which is the same on all of its ranks.
"""

from sipsim.core.errors import ConfigError


class Windows:
    """``count`` windows of ``nbytes`` each, from ``first`` on, in the TCM of every PE of ``n_sips`` SIPs."""

    def __init__(self, n_sips: int, first: int, nbytes: int, count: int) -> None:
        self._first = first
        self.nbytes = nbytes
        self._free = [list(range(count)) for _ in range(n_sips)]
        self.count = count

    def take(self, sips: tuple[int, ...]) -> dict[int, int]:
        """The TCM offset of a group's window on each of its SIPs: the lowest free one.

        Raises:
            ConfigError: when a SIP has none left; nothing is taken.
        """
        full = next((sip for sip in sips if not self._free[sip]), None)
        if full is not None:
            raise ConfigError(
                f"SIP {full} is in {self.count} groups, and its PEs' TCM has room for the rings of no more; give one "
                f"back with destroy_process_group(group), or set defaults.group_KiB or defaults.slot_size lower"
            )
        return {sip: self._first + self._free[sip].pop(0) * self.nbytes for sip in sips}

    def give(self, window: dict[int, int]) -> None:
        """Return a group's window."""
        for sip, offset in window.items():
            self._free[sip] = sorted([*self._free[sip], (offset - self._first) // self.nbytes])


class Room:
    """The room inside one window, shared by wirings: the least recently used ones make room for a new one."""

    def __init__(self, nbytes: int) -> None:
        self._nbytes = nbytes
        self._taken: dict[str, tuple[int, int]] = {}

    def use(self, name: str) -> bool:
        """Whether a wiring has room; it counts as used now."""
        taken = self._taken.pop(name, None)
        if taken is not None:
            self._taken[name] = taken
        return taken is not None

    def take(self, name: str, nbytes: int) -> tuple[int, list[str]]:
        """The offset of a new wiring in the window, and the wirings that must go before.

        Raises:
            ConfigError: for more than the whole window.
        """
        if nbytes > self._nbytes:
            raise ConfigError(f"{name} needs {nbytes} bytes for its rings, and a group has {self._nbytes}")
        gone: list[str] = []
        while (offset := self._gap(nbytes)) is None:
            gone.append(next(iter(self._taken)))
            del self._taken[gone[-1]]
        self._taken[name] = offset, nbytes
        return offset, gone

    def _gap(self, nbytes: int) -> int | None:
        """The first offset with so much free room behind it."""
        offset = 0
        for start, size in sorted(self._taken.values()):
            if start - offset >= nbytes:
                return offset
            offset = start + size
        return offset if self._nbytes - offset >= nbytes else None
