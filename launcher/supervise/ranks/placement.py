"""Which rank runs on which host: blocks at the start, the emptiest host after a host is lost. Pure."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence

Slots = int | None
"""How many ranks a host takes; None for any number."""


def place_blockwise(n_ranks: int, slots: Sequence[Slots]) -> list[int]:
    """The host index of each rank. Hosts without a limit share the ranks that exceed the others' slots.

    Raises:
        ValueError: when there are more ranks than slots.
    """
    room = sum(slot for slot in slots if slot is not None)
    shares = sum(slot is None for slot in slots)
    if room < n_ranks and not shares:
        raise ValueError(f"{n_ranks} SIPs need as many slots, and the hosts have {room}")
    left, rest = n_ranks, max(n_ranks - room, 0)
    places: list[int] = []
    for host, slot in enumerate(slots):
        if slot is None:
            take = -(-rest // shares)
            rest, shares = rest - take, shares - 1
        else:
            take = min(slot, left - rest)
        places += [host] * take
        left -= take
    return places


def next_host(living: Collection[int], slots: Mapping[int, Slots], ranks_on: Counter[int]) -> int | None:
    """The new host of a rank: most free slots, then fewest ranks, then the first; None without hosts."""

    def emptiness(host: int) -> tuple[float, int, int]:
        slot = slots[host]
        free = float("inf") if slot is None else slot - ranks_on[host]
        return -free, ranks_on[host], host

    return min(living, key=emptiness, default=None)
