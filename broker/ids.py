"""Types and limits of message fields: mail addresses, simulated times and channels. Plain data.

Times are integer picoseconds; ``None`` means "never".
"""

from typing import Annotated, NamedTuple

from msgspec import Meta

PROTOCOL = 8
BROKER = -1
LAUNCHER = -2

MAX_FRAME_BYTES = 64 * 2**20
MAX_ITEMS = 2**16

MAX_RANK = 4095
MAX_INCARNATION = 1023
Rank = Annotated[int, Meta(ge=0, le=MAX_RANK)]
Incarnation = Annotated[int, Meta(ge=0, le=MAX_INCARNATION)]
MAX_PS = 2**63 - 1
Ps = Annotated[int, Meta(ge=0, le=MAX_PS)]
Count = Annotated[int, Meta(ge=0, le=2**63 - 1)]
Channels = Annotated[int, Meta(ge=0, le=2**20)]
Text = Annotated[str, Meta(max_length=2**20)]
Blob = Annotated[bytes, Meta(max_length=MAX_FRAME_BYTES)]
Few = Meta(max_length=4096)
Many = Meta(max_length=MAX_ITEMS)


def address_of(rank: int, incarnation: int) -> int:
    """The mail address of one incarnation of a rank; the address of incarnation 0 is the rank."""
    return rank + incarnation * (MAX_RANK + 1)


def split_address(address: int) -> tuple[int, int]:
    """The rank and the incarnation of the SIP with this mail address."""
    incarnation, rank = divmod(address, MAX_RANK + 1)
    return rank, incarnation


MAX_ADDRESS = address_of(MAX_RANK, MAX_INCARNATION)


class Channel(NamedTuple):
    """A directed channel between two SIPs. ``delay_ps``: the lookahead, the least time from sending to arrival."""

    src: int
    dst: int
    delay_ps: int
    name: str


def pair_delays_ps(channels: list[Channel]) -> dict[tuple[int, int], int]:
    """The least delay of the channels of each ordered pair of SIPs, by (source, destination)."""
    least: dict[tuple[int, int], int] = {}
    for src, dst, delay_ps, _ in channels:
        least[src, dst] = min(least.get((src, dst), delay_ps), delay_ps)
    return least
