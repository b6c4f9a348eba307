"""Packets of the fabric: a header, which says where to and what there, and a payload. Pure.

Routes: a nibble a hop, one bit a direction (``E``, ``W``, ``N``, ``S``); the receiver at the link over which a packet
came takes the first one off. A bit of another direction forwards the packet there, the bit of the receiver's own
direction writes it to this chip, and both together are a multicast. Forward on a line or ring is ``E``, backward
``W``. Up to 2025 the header has a distance and a range instead (``short``), which is the same on a line.

Sources: pull request 14923 of tt-metal (commands, start and range), ``fabric_edm_packet_header.hpp`` (low-latency
route, 2D hop commands, fused write and increment, scatter write).
"""

import struct
from collections.abc import Callable, Sequence
from enum import IntEnum, IntFlag
from itertools import pairwise
from typing import NamedTuple

from sipsim.chips.tensix.noc import Core
from sipsim.core.errors import KernelMisuse


class Way(IntFlag):
    """A direction of a link, as a bit of a hop's nibble."""

    E = 1
    W = 2
    N = 4
    S = 8


OPPOSITE = {Way.E: Way.W, Way.W: Way.E, Way.N: Way.S, Way.S: Way.N}
MOST_HOPS = 32
MOST_SHORT = 15
MOST_VALUE = 2**16 - 1
ATOMIC_BYTES = 4
SHORT_COMMANDS = 2
"""Writes and increments: what early headers hold."""


class Command(IntEnum):
    """What the last router of a packet does with it on its chip."""

    WRITE = 0
    INCREMENT = 1
    WRITE_AND_INCREMENT = 2
    SCATTER = 3


class Target(NamedTuple):
    """A command and its places. ``increment``: tile, address and value. ``is_flushed``: the router waits until the
    write and all that its receiver has issued before it are acknowledged. ``first_bytes``: of a scattered payload, for
    the first place.
    """

    command: Command
    core: Core
    address: int
    increment_core: Core = Core(0, 0)
    increment_address: int = 0
    value: int = 0
    is_flushed: bool = False
    first_bytes: int = 0

    @property
    def takes_payload(self) -> bool:
        """Whether a payload goes with it."""
        return self.command is not Command.INCREMENT

    @property
    def wanted_payload(self) -> str:
        """What it takes, for messages."""
        return "needs a payload" if self.takes_payload else "takes no payload"


def write_to(core: Core | tuple[int, int], address: int) -> Target:
    """Write the payload to a tile."""
    return Target(Command.WRITE, Core(*core), address)


def increment_of(core: Core | tuple[int, int], address: int, value: int = 1, is_flushed: bool = False) -> Target:
    """Add to a word of a tile; ``is_flushed``: when all writes that the router's receiver has issued have been
    acknowledged.
    """
    place = Core(*core)
    return Target(Command.INCREMENT, place, 0, place, address, value, is_flushed)


def write_and_increment(
    core: Core | tuple[int, int],
    address: int,
    semaphore_core: Core | tuple[int, int],
    semaphore: int,
    value: int = 1,
    is_flushed: bool = True,
) -> Target:
    """Write the payload, then add to a word; ``is_flushed``: when that write, and those that the router's receiver has
    issued before it, have been acknowledged.
    """
    place = Core(*semaphore_core)
    return Target(Command.WRITE_AND_INCREMENT, Core(*core), address, place, semaphore, value, is_flushed)


def scatter_to(
    first: tuple[Core | tuple[int, int], int], second: tuple[Core | tuple[int, int], int], first_bytes: int
) -> Target:
    """Write the first ``first_bytes`` of the payload to one place, the rest to another."""
    (core, address), (core_2, address_2) = first, second
    return Target(Command.SCATTER, Core(*core), address, Core(*core_2), address_2, 0, False, first_bytes)


class Route(NamedTuple):
    """The nibbles of a packet, the first hop first; ``way``: of its first link. ``short``: distance to the first target
    and number of targets, as early headers have it; None where they cannot say it.
    """

    nibbles: tuple[int, ...]
    way: Way
    short: tuple[int, int] | None


def unicast(hops: int, way: Way = Way.E) -> Route:
    """To the chip at a distance.

    Raises:
        KernelMisuse: for what is no distance that a header holds.
    """
    return multicast(hops, 1, way)


def multicast(start: int, number: int, way: Way = Way.E) -> Route:
    """To ``number`` chips in a row, the first of which is ``start`` hops away.

    Raises:
        KernelMisuse: for what is no distance that a header holds.
    """
    last = start + number - 1
    if start < 1 or number < 1 or last > MOST_HOPS:
        raise KernelMisuse(f"a packet for {number} chips from distance {start} on; 1 to {MOST_HOPS} hops can be told")
    back = OPPOSITE[way]
    nibbles = [way | (back if hop >= start else 0) for hop in range(1, last)] + [back]
    is_short = max(start, number) <= MOST_SHORT
    return Route(tuple(int(each) for each in nibbles), way, (start, number) if is_short else None)


def mesh_unicast(east: int, south: int) -> Route:
    """To the chip so far to the east and then to the south; negative: to the west, to the north.

    Raises:
        KernelMisuse: for what is no distance that a header holds.
    """
    ways = [Way.E if east > 0 else Way.W] * abs(east) + [Way.S if south > 0 else Way.N] * abs(south)
    return path(ways, [False] * (len(ways) - 1) + [True])


def path(ways: Sequence[Way], is_written: Sequence[bool]) -> Route:
    """Over one hop after the other; to those chips on the way that are marked, the last one always.

    Raises:
        KernelMisuse: for a number of hops that a header does not hold, or a way straight back.
    """
    if not 1 <= len(ways) <= MOST_HOPS or len(is_written) != len(ways):
        raise KernelMisuse(f"a packet over {len(ways)} hops with {len(is_written)} marks; 1 to {MOST_HOPS} can be told")
    back = next((before for before, way in pairwise(ways) if way is OPPOSITE[before]), None)
    if back is not None:
        raise KernelMisuse(f"the route of a packet goes {back.name} and straight back, which routers do not")
    onward = [*(int(way) for way in ways[1:]), 0]
    marks = [*is_written[:-1], True]
    own = [int(OPPOSITE[way]) if mark else 0 for way, mark in zip(ways, marks, strict=True)]
    return Route(tuple(a | b for a, b in zip(onward, own, strict=True)), ways[0], None)


class Hop(NamedTuple):
    """What the next router does: write here, forward that way, and the header that is forwarded."""

    is_local: bool
    ways: tuple[Way, ...]
    header: bytes

    @property
    def sender(self) -> int:
        """The channel of the router that sent it."""
        return self.header[_SENDER_AT]


_LONG = struct.Struct("<BBHB3x16sBBHIBBHI8x")
_SHORT = struct.Struct("<BBHBBBBIBBHI12x")
LONG_BYTES, SHORT_BYTES = _LONG.size, _SHORT.size
_FLUSH = 0x80
_SENDER_AT = 4
_ROUTE_AT = 8
_HOPS_AT = 5


def pack(route: Route, target: Target, payload_bytes: int, is_short: bool) -> bytes:
    """A header's bytes, as a worker writes them. ``is_short``: as up to 2025.

    Raises:
        KernelMisuse: for what such a header does not hold.
    """
    kind = int(target.command) | (_FLUSH if target.is_flushed else 0)
    near, far = target.core, target.increment_core
    if target.command is Command.SCATTER:
        _check_parts(target.first_bytes, payload_bytes)
    if not 0 <= target.value <= MOST_VALUE:
        raise KernelMisuse(f"a packet that adds {target.value} to a word; a header holds 0 to {MOST_VALUE}")
    if is_short:
        if route.short is None or target.command not in (Command.WRITE, Command.INCREMENT):
            raise KernelMisuse("the headers of this revision hold distances up to 15 on a line, writes and increments")
        start, number = route.short
        increment = (far.x, far.y, target.value, target.increment_address)
        return _SHORT.pack(kind, 0, payload_bytes, 0, number << 4 | start, near.x, near.y, target.address, *increment)
    nibbles = sum(nibble << 4 * hop for hop, nibble in enumerate(route.nibbles))
    places = (near.x, near.y, target.first_bytes, target.address, far.x, far.y, target.value, target.increment_address)
    return _LONG.pack(kind, 0, payload_bytes, 0, nibbles.to_bytes(16, "little"), *places)


def target_of(header: bytes) -> Target:
    """The command of a header, and its places.

    Raises:
        KernelMisuse: for a command that there is not.
    """
    first = 0
    if len(header) == LONG_BYTES:
        kind, _, _, _, _, x, y, first, address, far_x, far_y, value, far = _LONG.unpack(header)
    else:
        kind, _, _, _, _, x, y, address, far_x, far_y, value, far = _SHORT.unpack(header)
    places = (Core(x, y), address, Core(far_x, far_y), far, value)
    commands = len(Command) if len(header) == LONG_BYTES else SHORT_COMMANDS
    if kind & ~_FLUSH >= commands:
        raise KernelMisuse(f"its command is {kind & ~_FLUSH}, and those of its revision are 0 to {commands - 1}")
    return Target(Command(kind & ~_FLUSH), *places, bool(kind & _FLUSH), first)


def check_header(header: bytes, most_bytes: int, problem_of: Callable[[Core, int, int], str]) -> None:
    """Check what a worker has written in front of a payload. ``problem_of(core, address, nbytes)``: why a tile of these
    chips has no such memory; empty where it has.

    Raises:
        KernelMisuse: for what is no header of a packet that can be delivered, its route aside.
    """
    try:
        target, nbytes = target_of(header), nbytes_of(header)
        _check_payload(target, nbytes, most_bytes)
        for core, address, part in places(target, nbytes):
            problem = problem_of(core, address, part)
            if problem:
                raise KernelMisuse(problem)
    except KernelMisuse as misuse:
        raise KernelMisuse(f"a packet whose header is {header.hex()} was written into a slot: {misuse}") from None


def _check_payload(target: Target, nbytes: int, most_bytes: int) -> None:
    if nbytes > most_bytes:
        raise KernelMisuse(f"its payload is {nbytes} B, and a slot has room for {most_bytes} B")
    if bool(nbytes) is not target.takes_payload:
        raise KernelMisuse(f"its payload is {nbytes} B, and command {target.command.name} {target.wanted_payload}")
    if target.command is Command.SCATTER:
        _check_parts(target.first_bytes, nbytes)


def _check_parts(first_bytes: int, nbytes: int) -> None:
    if not 0 < first_bytes < nbytes:
        raise KernelMisuse(f"{first_bytes} of {nbytes} B for the first place; each of both takes some")


def places(target: Target, nbytes: int) -> list[tuple[Core, int, int]]:
    """What is written or added to: tile, address and bytes."""
    near, far = (target.core, target.address), (target.increment_core, target.increment_address)
    return {
        Command.WRITE: [(*near, nbytes)],
        Command.INCREMENT: [(*far, ATOMIC_BYTES)],
        Command.WRITE_AND_INCREMENT: [(*near, nbytes), (*far, ATOMIC_BYTES)],
        Command.SCATTER: [(*near, target.first_bytes), (*far, nbytes - target.first_bytes)],
    }[target.command]


def set_sender(header: bytes, sender: int) -> bytes:
    """The header with the number of the channel that sends it."""
    return header[:_SENDER_AT] + bytes((sender,)) + header[_SENDER_AT + 1 :]


def _steps_of(here: int, own: Way) -> tuple[bool, tuple[Way, ...]]:
    return bool(here & own), tuple(way for way in Way if way & here and way is not own)


_STEPS = {(here, own): _steps_of(here, own) for here in range(16) for own in Way}
"""By a hop's nibble and the way of the receiver's link: whether it writes here, and the ways on."""


def next_hop(header: bytes, own: Way) -> Hop:
    """What the receiver that sits at the link to ``own`` does with a packet."""
    if len(header) == LONG_BYTES:
        nibbles = int.from_bytes(header[_ROUTE_AT : _ROUTE_AT + 16], "little")
        here, rest = nibbles & 15, (nibbles >> 4).to_bytes(16, "little")
        return Hop(*_STEPS[here, own], header[:_ROUTE_AT] + rest + header[_ROUTE_AT + 16 :])
    number, start = divmod(header[_HOPS_AT], 16)
    if not number or not start:
        return Hop(False, (), header)
    is_local = start == 1
    goes_on = not is_local or number > 1
    left = (number - 1) << 4 | 1 if is_local else number << 4 | (start - 1)
    rest = header[:_HOPS_AT] + bytes((left,)) + header[_HOPS_AT + 1 :]
    return Hop(is_local, (OPPOSITE[own],) if goes_on else (), rest)


def nbytes_of(header: Sequence[int] | bytes) -> int:
    """The payload's size."""
    return header[2] | header[3] << 8
