"""Which rank runs on which host: by blocks at first, on the emptiest when a host is gone. Pure."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence

Slots = int | None
"""How many ranks a host takes; None for any number."""


def place_blockwise(n_ranks: int, slots: Sequence[Slots]) -> list[int]:
    """The host of each rank, by index. Hosts that take any number share what is too much for the others.

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
    """Where a rank goes whose host is gone: most free slots, then fewest ranks, then the first; None for nowhere."""

    def emptiness(host: int) -> tuple[float, int, int]:
        slot = slots[host]
        free = float("inf") if slot is None else slot - ranks_on[host]
        return -free, ranks_on[host], host

    return min(living, key=emptiness, default=None)
