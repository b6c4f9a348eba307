"""Packets of the fabric: a header with the route and the command, and a payload. Pure.

A route has one nibble per hop, with one bit per direction (``E``, ``W``, ``N``, ``S``). The receiver at the link over
which a packet arrives removes the first nibble. The bit of that link's direction writes the packet to this chip; the
bit of another direction forwards the packet in that direction; both bits together are a multicast. On a line or ring,
forward is ``E`` and backward ``W``. Headers up to 2025 (``short``) have no nibbles, but a distance and a number of
chips, which suffice on a line.

Sources: ``fabric_edm_packet_header.hpp`` of tt-metal, in pull request 14923 (``short``, bit for bit) and later
(low-latency route, 2D hop commands, fused write and increment, scatter write; the commands, not their places).
"""

import struct
from collections.abc import Callable, Sequence
from enum import IntEnum, IntFlag
from itertools import pairwise
from typing import NamedTuple

from sipsim.chips.tensix.memory import ATOMIC_BYTES
from sipsim.chips.tensix.noc import Core
from sipsim.core.errors import KernelMisuse


class Direction(IntFlag):
    """Direction of a link, as a bit of a hop's nibble."""

    E = 1
    W = 2
    N = 4
    S = 8


OPPOSITE = {Direction.E: Direction.W, Direction.W: Direction.E, Direction.N: Direction.S, Direction.S: Direction.N}
MOST_HOPS = 32
MOST_SHORT = 15
"""The most hops to the first chip of a multicast, and chips of a multicast, in an early header."""
MOST_VALUE = 2**16 - 1


class NocCommand(IntEnum):
    """Command that a router executes on the chip for a packet that has reached a target chip."""

    WRITE = 0
    INCREMENT = 1
    WRITE_AND_INCREMENT = 2
    SCATTER = 3
    MULTICAST = 4


class Target(NamedTuple):
    """Command of a packet with its addresses. ``increment_core``, ``increment_address``: the word to which ``value`` is
    added. ``is_flushed``: the router adds only after this write and all earlier writes of the same receiver channel are
    acknowledged. ``first_bytes``: bytes of a scattered payload for the first address. A multicast to tiles goes to the
    Tensix tiles of the rectangle from ``core`` to ``increment_core``.
    """

    command: NocCommand
    core: Core
    address: int
    increment_core: Core = Core(0, 0)
    increment_address: int = 0
    value: int = 0
    is_flushed: bool = False
    first_bytes: int = 0

    @property
    def takes_payload(self) -> bool:
        """Whether the command takes a payload."""
        return self.command is not NocCommand.INCREMENT

    @property
    def wanted_payload(self) -> str:
        """The required payload, for messages."""
        return "needs a payload" if self.takes_payload else "takes no payload"


def write_to(core: Core | tuple[int, int], address: int) -> Target:
    """Return the target that writes the payload to a tile."""
    return Target(NocCommand.WRITE, Core(*core), address)


def increment_of(core: Core | tuple[int, int], address: int, value: int = 1, is_flushed: bool = False) -> Target:
    """Return the target that adds ``value`` to a word of a tile. ``is_flushed``: wait for earlier writes first."""
    place = Core(*core)
    return Target(NocCommand.INCREMENT, place, 0, place, address, value, is_flushed)


def write_and_increment(
    core: Core | tuple[int, int],
    address: int,
    semaphore_core: Core | tuple[int, int],
    semaphore: int,
    value: int = 1,
    is_flushed: bool = True,
) -> Target:
    """Return the target that writes the payload, then adds ``value`` to a word. ``is_flushed``: add only after this
    write and all earlier writes of the router's receiver are acknowledged.
    """
    place = Core(*semaphore_core)
    return Target(NocCommand.WRITE_AND_INCREMENT, Core(*core), address, place, semaphore, value, is_flushed)


def scatter_to(
    first: tuple[Core | tuple[int, int], int], second: tuple[Core | tuple[int, int], int], first_bytes: int
) -> Target:
    """Return the target that writes ``first_bytes`` of the payload to ``first``, and the other bytes to ``second``."""
    (core, address), (core_2, address_2) = first, second
    return Target(NocCommand.SCATTER, Core(*core), address, Core(*core_2), address_2, 0, False, first_bytes)


def write_to_tiles(first: Core | tuple[int, int], last: Core | tuple[int, int], address: int) -> Target:
    """Return the target that writes the payload to the same address of all Tensix tiles of a rectangle, by a multicast
    of the NoC. ``first``, ``last``: the upper left tile, the lower right one.
    """
    return Target(NocCommand.MULTICAST, Core(*first), address, Core(*last))


class Route(NamedTuple):
    """Route of a packet: one nibble per hop, the first hop first. ``way``: direction of the first link. ``short``: the
    route in an early header (distance to the first target, number of targets); None if no such header can state it.
    """

    nibbles: tuple[int, ...]
    way: Direction
    short: tuple[int, int] | None


def unicast(hops: int, way: Direction = Direction.E) -> Route:
    """Return the route to the chip ``hops`` hops away.

    Raises:
        KernelMisuse: for a distance that does not fit in a header.
    """
    return multicast(hops, 1, way)


def multicast(start: int, number: int, way: Direction = Direction.E) -> Route:
    """Return the route to ``number`` consecutive chips, of which the first is ``start`` hops away.

    Raises:
        KernelMisuse: for a distance that does not fit in a header.
    """
    last = start + number - 1
    if start < 1 or number < 1 or last > MOST_HOPS:
        raise KernelMisuse(f"a packet cannot reach {number} chips from hop {start} on; use hops 1 to {MOST_HOPS}")
    back = OPPOSITE[way]
    nibbles = [way | (back if hop >= start else 0) for hop in range(1, last)] + [back]
    is_short = number == 1 or max(start, number) <= MOST_SHORT
    return Route(tuple(int(each) for each in nibbles), way, (start, number) if is_short else None)


def mesh_unicast(east: int, south: int) -> Route:
    """Return the route over ``east`` hops and then ``south`` hops. Negative numbers lead west or north.

    Raises:
        KernelMisuse: for a distance that does not fit in a header.
    """
    ways = [Direction.E if east > 0 else Direction.W] * abs(east)
    ways += [Direction.S if south > 0 else Direction.N] * abs(south)
    return path(ways, [False] * (len(ways) - 1) + [True])


def path(ways: Sequence[Direction], is_written: Sequence[bool]) -> Route:
    """Return the route with one hop per entry of ``ways``. ``is_written``: by hop, whether the chip at the end of the
    hop receives the packet; the last chip always receives the packet.

    Raises:
        KernelMisuse: for more hops than fit in a header, or a hop back over the same link.
    """
    if not 1 <= len(ways) <= MOST_HOPS or len(is_written) != len(ways):
        raise KernelMisuse(f"a path has {len(ways)} hops and {len(is_written)} marks; give 1 to {MOST_HOPS} of both")
    back = next((before for before, way in pairwise(ways) if way is OPPOSITE[before]), None)
    if back is not None:
        raise KernelMisuse(f"the route of a packet leads {back.name} and straight back, which routers do not support")
    onward = [*(int(way) for way in ways[1:]), 0]
    marks = [*is_written[:-1], True]
    local = [int(OPPOSITE[way]) if mark else 0 for way, mark in zip(ways, marks, strict=True)]
    return Route(tuple(a | b for a, b in zip(onward, local, strict=True)), ways[0], None)


class Hop(NamedTuple):
    """Work of a router for a packet: whether to write here, the onward directions, and the header to forward."""

    is_local: bool
    ways: tuple[Direction, ...]
    header: bytes

    @property
    def sender(self) -> int:
        """The sender channel of the router that sent the packet, if the header says so."""
        return self.header[_SENDER_AT] if len(self.header) == LONG_BYTES else self.header[0] >> _SOURCE_BIT


_LONG = struct.Struct("<BBHB3x16sBBHIBBHI8x")
_SHORT_WRITE = struct.Struct("<BBxxIIBBBB16x")
"""Bits of commands, route, address, size with the header, first tile, size of the rectangle."""
_SHORT_INCREMENT = struct.Struct("<BBxxIHHBBxx16x")
"""Bits of commands, route, address, value, wrap, tile."""
LONG_BYTES, SHORT_BYTES = _LONG.size, _SHORT_WRITE.size
_FLUSH = 0x80
_SENDER_AT = 4
_ROUTE_AT = 8
_HOPS_AT = 1
_COMMAND_BITS, _CHIP_MULTICAST, _NOC_MULTICAST, _SOURCE_BIT = 3, 4, 8, 4
"""Bits of an early header's first byte: ``command_type`` (2 bits), ``chip_send_type``, ``noc_send_type``, and 4 bits
that pull request 14923 reserves, and in which later headers have the sender channel (``src_ch_id``).
"""
_SHORT_KINDS = {NocCommand.WRITE: 0, NocCommand.INCREMENT: 1, NocCommand.MULTICAST: _NOC_MULTICAST}
_SHORT_COMMANDS = {bits: command for command, bits in _SHORT_KINDS.items()}
_WRAP = 32
"""Bits of a word, after which an increment wraps."""


_UPPER_LEFT = "give the upper left tile and then the lower right one"


def pack(route: Route, target: Target, payload_bytes: int, is_short: bool) -> bytes:
    """Return the header of a packet, as a worker writes it. ``is_short``: whether to make a header of pull request
    14923. It has no bit for ``is_flushed`` and needs none, since routers of that revision wait for each write.

    Raises:
        KernelMisuse: for a value that does not fit in such a header.
    """
    kind = int(target.command) | (_FLUSH if target.is_flushed else 0)
    near, far = target.core, target.increment_core
    if target.command is NocCommand.SCATTER:
        _check_parts(target.first_bytes, payload_bytes)
    if not 0 <= target.value <= MOST_VALUE:
        raise KernelMisuse(f"a packet cannot add {target.value} to a word; give 0 to {MOST_VALUE}")
    if is_short:
        if route.short is None or target.command not in _SHORT_KINDS:
            given = f"command {target.command.name} on a route of {len(route.nibbles)} hops does not fit"
            what = "the headers of this revision hold a unicast, or a multicast of distances up to 15, on a line"
            raise KernelMisuse(f"{given}: {what}; give such a route, and a write, an increment or a write to tiles")
        start, number = route.short
        is_chips = number > 1
        first = _SHORT_KINDS[target.command] | is_chips * _CHIP_MULTICAST, number << 4 | start if is_chips else start
        if target.command is NocCommand.INCREMENT:
            return _SHORT_INCREMENT.pack(*first, target.increment_address, target.value, _WRAP, *far)
        if target.command is NocCommand.WRITE:
            return _SHORT_WRITE.pack(*first, target.address, SHORT_BYTES + payload_bytes, *near, 0, 0)
        size = far.x - near.x + 1, far.y - near.y + 1
        if not all(0 < each < 2**8 for each in size):
            raise KernelMisuse(f"a multicast to tiles {near} to {far}: {_UPPER_LEFT}")
        return _SHORT_WRITE.pack(*first, target.address, SHORT_BYTES + payload_bytes, *near, *size)
    nibbles = sum(nibble << 4 * hop for hop, nibble in enumerate(route.nibbles))
    places = (near.x, near.y, target.first_bytes, target.address, far.x, far.y, target.value, target.increment_address)
    return _LONG.pack(kind, 0, payload_bytes, 0, nibbles.to_bytes(16, "little"), *places)


def target_of(header: bytes) -> Target:
    """Return the command and the addresses in a header.

    Raises:
        KernelMisuse: for an unknown command.
    """
    if len(header) == SHORT_BYTES:
        return _short_target(header)
    kind, _, _, _, _, x, y, first, address, far_x, far_y, value, far = _LONG.unpack(header)
    near_and_far = (Core(x, y), address, Core(far_x, far_y), far, value)
    if kind & ~_FLUSH >= len(NocCommand):
        last = len(NocCommand) - 1
        raise KernelMisuse(f"the command is {kind & ~_FLUSH}, but this revision has commands 0 to {last}")
    return Target(NocCommand(kind & ~_FLUSH), *near_and_far, bool(kind & _FLUSH), first)


def _short_target(header: bytes) -> Target:
    command = _SHORT_COMMANDS.get(header[0] & (_COMMAND_BITS | _NOC_MULTICAST))
    if command is None:
        kind, send = header[0] & _COMMAND_BITS, header[0] // _NOC_MULTICAST % 2
        what = "this revision has commands 0 (write) and 1 (increment), and multicasts of writes alone"
        raise KernelMisuse(f"the command is {kind} with NoC send type {send}, but {what}")
    if command is NocCommand.INCREMENT:
        _, _, address, value, _, x, y = _SHORT_INCREMENT.unpack(header)
        return increment_of((x, y), address, value)
    _, _, address, _, x, y, width, height = _SHORT_WRITE.unpack(header)
    if command is NocCommand.MULTICAST:
        return write_to_tiles((x, y), (x + width - 1, y + height - 1), address)
    return write_to((x, y), address)


Receivers = Callable[[Core, Core], Sequence[Core]]
"""A function that returns the tiles that take a multicast to a rectangle, or raises ``KernelMisuse``."""


def check_header(
    header: bytes, most_bytes: int, problem_of: Callable[[Core, int, int], str], receivers: Receivers
) -> None:
    """Check the header that a worker has written in front of a payload of at most ``most_bytes``.
    ``problem_of(core, address, nbytes)`` returns why a tile of these chips lacks this memory, or an empty text.

    Raises:
        KernelMisuse: if the packet cannot be delivered; the route is not checked.
    """
    try:
        target, nbytes = target_of(header), nbytes_of(header)
        _check_payload(target, nbytes, most_bytes)
        for core, address, part in places(target, nbytes, receivers):
            problem = problem_of(core, address, part)
            if problem:
                raise KernelMisuse(problem)
    except KernelMisuse as misuse:
        raise KernelMisuse(f"a packet whose header is {header.hex()} was written into a slot: {misuse}") from None


def _check_payload(target: Target, nbytes: int, most_bytes: int) -> None:
    if not 0 <= nbytes <= most_bytes:
        raise KernelMisuse(f"the payload is {nbytes} B, but a slot holds at most {most_bytes} B")
    if bool(nbytes) is not target.takes_payload:
        raise KernelMisuse(f"the payload is {nbytes} B, but command {target.command.name} {target.wanted_payload}")
    if target.command is NocCommand.SCATTER:
        _check_parts(target.first_bytes, nbytes)


def _check_parts(first_bytes: int, nbytes: int) -> None:
    if not 0 < first_bytes < nbytes:
        raise KernelMisuse(f"the first address gets {first_bytes} of {nbytes} B; give both addresses 1 B or more")


def places(target: Target, nbytes: int, receivers: Receivers) -> list[tuple[Core, int, int]]:
    """Return the ranges of memory that a packet writes or increments, each as (tile, address, size in bytes).

    Raises:
        KernelMisuse: for a multicast to a wrong rectangle.
    """
    if target.command is NocCommand.MULTICAST:
        return [(core, target.address, nbytes) for core in receivers(target.core, target.increment_core)]
    near, far = (target.core, target.address), (target.increment_core, target.increment_address)
    return {
        NocCommand.WRITE: [(*near, nbytes)],
        NocCommand.INCREMENT: [(*far, ATOMIC_BYTES)],
        NocCommand.WRITE_AND_INCREMENT: [(*near, nbytes), (*far, ATOMIC_BYTES)],
        NocCommand.SCATTER: [(*near, target.first_bytes), (*far, nbytes - target.first_bytes)],
    }[target.command]


def set_sender(header: bytes, sender: int) -> bytes:
    """Return the header with the number of the sender channel set to ``sender``."""
    if len(header) == SHORT_BYTES:
        return bytes((header[0] % 2**_SOURCE_BIT | sender << _SOURCE_BIT,)) + header[1:]
    return header[:_SENDER_AT] + bytes((sender,)) + header[_SENDER_AT + 1 :]


def _steps_of(nibble: int, link: Direction) -> tuple[bool, tuple[Direction, ...]]:
    return bool(nibble & link), tuple(way for way in Direction if way & nibble and way is not link)


_STEPS = {(nibble, link): _steps_of(nibble, link) for nibble in range(16) for link in Direction}
"""By hop nibble and direction of the receiver's link: whether the router writes on its chip, and onward directions."""


def next_hop(header: bytes, link: Direction) -> Hop:
    """Return the router's work for a packet that has arrived over the link in direction ``link``."""
    if len(header) == LONG_BYTES:
        nibbles = int.from_bytes(header[_ROUTE_AT : _ROUTE_AT + 16], "little")
        nibble, rest = nibbles & 15, (nibbles >> 4).to_bytes(16, "little")
        return Hop(*_STEPS[nibble, link], header[:_ROUTE_AT] + rest + header[_ROUTE_AT + 16 :])
    is_chips = bool(header[0] & _CHIP_MULTICAST)
    number, start = divmod(header[_HOPS_AT], 16) if is_chips else (1, header[_HOPS_AT])
    if not number or not start:
        return Hop(False, (), header)
    is_local = start == 1
    goes_on = not is_local or number > 1
    hops = header[_HOPS_AT] - (16 if is_local and is_chips else 1)
    rest = header[:_HOPS_AT] + bytes((hops,)) + header[_HOPS_AT + 1 :]
    return Hop(is_local, (OPPOSITE[link],) if goes_on else (), rest)


def nbytes_of(header: bytes) -> int:
    """Return the size of a packet's payload in bytes; less than 0 if an early header states less than its own size."""
    if len(header) == LONG_BYTES:
        return header[2] | header[3] << 8
    is_increment = header[0] & _COMMAND_BITS == _SHORT_KINDS[NocCommand.INCREMENT]
    return 0 if is_increment else int.from_bytes(header[8:12], "little") - SHORT_BYTES
