"""Packets, places and layouts of the fabric: what a header says, where a route leads, what lies where."""

import random
import struct
from itertools import pairwise, product

import pytest

from sipsim.chips.tensix.fabric.fabric import Places
from sipsim.chips.tensix.fabric.layout import CONTROL_BYTES, HANDSHAKE_BYTES, layout
from sipsim.chips.tensix.fabric.packet import (
    LONG_BYTES,
    MOST_HOPS,
    OPPOSITE,
    SHORT_BYTES,
    Direction,
    Route,
    Target,
    check_header,
    increment_of,
    mesh_unicast,
    multicast,
    nbytes_of,
    next_hop,
    pack,
    scatter_to,
    set_sender,
    target_of,
    unicast,
    write_and_increment,
    write_to,
    write_to_tiles,
)
from sipsim.chips.tensix.fabric.router import handshake_of
from sipsim.chips.tensix.noc import Core
from sipsim.chips.tensix.params import Slots
from sipsim.core.errors import KernelMisuse

A, B = Core(3, 4), Core(9, 11)
TARGETS = (
    write_to(A, 0x12340),
    increment_of(A, 0x20, 7),
    write_and_increment(A, 0x12340, B, 0x40, 2**16 - 1),
    write_and_increment(A, 0x12340, B, 0x40, is_flushed=False),
    scatter_to((A, 0x1000), (B, 0x2000), 48),
    write_to_tiles(A, B, 0x3000),
)
SHORT_TARGETS = (*TARGETS[:2], TARGETS[5])


def packed(target: Target, nbytes: int) -> bytes:
    """A long header, to the neighbour."""
    return pack(unicast(1), target, nbytes, False)


# --- headers ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("nbytes", [64, 4352, 7616])
def test_a_long_header_says_all(target: Target, nbytes: int) -> None:
    header = set_sender(pack(unicast(3), target, nbytes, False), 5)
    assert len(header) == LONG_BYTES
    assert (target_of(header), nbytes_of(header), next_hop(header, Direction.W).sender) == (target, nbytes, 5)


@pytest.mark.parametrize("target", SHORT_TARGETS)
def test_a_short_header_says_what_it_has_room_for(target: Target) -> None:
    nbytes = 64 * target.takes_payload
    header = set_sender(pack(multicast(2, 3), target, nbytes, True), 1)
    assert len(header) == SHORT_BYTES
    assert (target_of(header), nbytes_of(header), next_hop(header, Direction.W).sender) == (target, nbytes, 1)


CHIPS, TILES, INCREMENT = 4, 8, 1
"""Bits of the first byte of the pull request's ``PacketHeader``: ``chip_send_type``, ``noc_send_type``,
``command_type``."""
FIELDS = {
    "unicast write": (unicast(17), TARGETS[0], "<BBHIIBBH", (0, 17, 0, 0x12340, 32 + 48, 3, 4, 0)),
    "multicast of a write": (multicast(2, 3), TARGETS[0], "<BBHIIBBH", (CHIPS, 0x32, 0, 0x12340, 32 + 48, 3, 4, 0)),
    "unicast increment": (unicast(1), TARGETS[1], "<BBHIHHBBH", (INCREMENT, 1, 0, 0x20, 7, 32, 3, 4, 0)),
    "multicast of an increment": (
        multicast(1, 15), TARGETS[1], "<BBHIHHBBH", (INCREMENT | CHIPS, 0xF1, 0, 0x20, 7, 32, 3, 4, 0),
    ),
    "write to tiles": (unicast(2), TARGETS[5], "<BBHIIBBBB", (TILES, 2, 0, 0x3000, 32 + 48, 3, 4, 7, 8)),
    "multicast of a write to tiles": (
        multicast(1, 2), TARGETS[5], "<BBHIIBBBB", (TILES | CHIPS, 0x21, 0, 0x3000, 32 + 48, 3, 4, 7, 8),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FIELDS)
def test_short_headers_are_those_of_the_pull_request(name: str) -> None:
    """Field by field, as its structs have them: 4 bytes, 12 bytes of a command, 16 bytes of padding."""
    route, target, layout_of_fields, fields = FIELDS[name]
    header = pack(route, target, 48 * target.takes_payload, True)
    assert header == struct.pack(layout_of_fields, *fields) + bytes(16)


FAR = [(mesh_unicast(1, 1), TARGETS[0]), (multicast(16, 2), TARGETS[0])]


@pytest.mark.parametrize(("route", "target"), [*((unicast(1), target) for target in TARGETS[2:5]), *FAR])
def test_what_a_short_header_has_no_room_for_is_refused(route: Route, target: Target) -> None:
    with pytest.raises(KernelMisuse, match="the headers of this revision hold a unicast, or a multicast of distances"):
        pack(route, target, 64, True)


NO_COMMAND, TOO_LONG = b"\x05" + bytes(47), struct.pack("<BBH", 0, 0, 65) + bytes(44)
NO_SHORT_COMMAND, NO_SHORT_SEND = b"\x02\x01" + bytes(30), b"\x09\x01" + bytes(30)
NOT_THERE = Core(60, 60)


def problem_of(core: Core, address: int, nbytes: int) -> str:
    """All tiles but one have memories of 1 MiB."""
    if core == NOT_THERE:
        return f"tile {core} has no memory"
    return "behind the end" if address + nbytes > 2**20 else ""


def receivers(first: Core, last: Core) -> list[Core]:
    """All tiles but one take multicasts."""
    if NOT_THERE in (first, last) or first > last:
        raise KernelMisuse(f"no tiles {first} to {last}")
    return [Core(x, y) for y in range(first.y, last.y + 1) for x in range(first.x, last.x + 1)]


@pytest.mark.parametrize("first_bytes", [0, 64, 65])
def test_both_places_of_a_scattered_payload_take_some(first_bytes: int) -> None:
    with pytest.raises(
        KernelMisuse, match=f"the first address gets {first_bytes} of 64 B; give both addresses 1 B or more"
    ):
        pack(unicast(1), scatter_to((A, 0), (B, 0), first_bytes), 64, False)


@pytest.mark.parametrize("value", [-1, 2**16])
def test_what_no_header_can_add(value: int) -> None:
    with pytest.raises(KernelMisuse, match=f"a packet cannot add {value} to a word; give 0 to 65535"):
        pack(unicast(1), increment_of(A, 0, value), 0, False)


@pytest.mark.parametrize(
    ("header", "line"),
    [
        (NO_COMMAND, "the command is 5, but this revision has commands 0 to 4"),
        (NO_SHORT_COMMAND, "the command is 2 with NoC send type 0, but this revision has commands 0"),
        (NO_SHORT_SEND, "the command is 1 with NoC send type 1, but this revision has commands 0"),
        (bytes(32), "the payload is -32 B, but a slot holds at most 64 B"),
        (packed(write_to_tiles(A, NOT_THERE, 0), 64), "no tiles 3-4 to 60-60"),
        (packed(write_to_tiles(A, B, 2**20 - 63), 64), "behind the end"),
        (TOO_LONG, "the payload is 65 B, but a slot holds at most 64 B"),
        (packed(TARGETS[0], 0), "the payload is 0 B, but command WRITE needs a payload"),
        (packed(TARGETS[1], 64), "the payload is 64 B, but command INCREMENT takes no payload"),
        (packed(TARGETS[4], 49)[:2] + b"\x30" + packed(TARGETS[4], 49)[3:], "the first address gets 48 of 48 B"),
        (packed(write_to(NOT_THERE, 0), 64), "tile 60-60 has no memory"),
        (packed(increment_of(NOT_THERE, 0), 0), "tile 60-60 has no memory"),
        (packed(write_to(A, 2**20 - 63), 64), "behind the end"),
        (packed(increment_of(A, 2**20 - 3), 0), "behind the end"),
        (packed(write_and_increment(A, 0, B, 2**32 - 1), 64), "behind the end"),
        (packed(scatter_to((A, 0), (B, 2**20 - 15), 48), 64), "behind the end"),
    ],
    ids=lambda each: each if isinstance(each, str) else "",
)
def test_what_is_no_header_is_refused(header: bytes, line: str) -> None:
    with pytest.raises(KernelMisuse, match=f"header is {header.hex()} was written into a slot: {line}"):
        check_header(header, 64, problem_of, receivers)


def test_a_header_of_the_longest_payload_is_one() -> None:
    for target in TARGETS:
        check_header(packed(target, 64 * target.takes_payload), 64, problem_of, receivers)


@pytest.mark.parametrize("size", [LONG_BYTES, SHORT_BYTES])
def test_any_bytes_are_a_header_or_refused(size: int) -> None:
    """One or some bytes of a good header are others: most are refused, and some are not."""
    draw, refused, tries = random.Random(size), 0, 3000
    for _ in range(tries):
        target = draw.choice(TARGETS if size == LONG_BYTES else SHORT_TARGETS)
        header = bytearray(pack(unicast(3), target, 60 * target.takes_payload, size == SHORT_BYTES))
        for _ in range(draw.choice((1, 4, size))):
            header[draw.randrange(size)] = draw.randrange(256)
        try:
            check_header(bytes(header), 64, problem_of, receivers)
        except KernelMisuse:
            refused += 1
        else:
            next_hop(bytes(header), Direction.W)
    assert tries // 10 < refused < tries


# --- routes -----------------------------------------------------------------------------------------------------


def delivered(places: Places, at: int, way: Direction, header: bytes) -> list[int]:
    """The chips that a packet comes to, in the order in which it is forwarded."""
    found, on_their_way = [], [(at, way, header)]
    while on_their_way:
        rank, onward, packed = on_their_way.pop(0)
        rank = places.neighbours(rank)[onward]
        hop = next_hop(packed, OPPOSITE[onward])
        if hop.is_local:
            found.append(rank)
        on_their_way += [(rank, each, hop.header) for each in hop.ways]
    return found


@pytest.mark.parametrize("is_short", [False, True])
@pytest.mark.parametrize("size", range(2, 7))
def test_every_route_of_a_line_leads_to_its_chips(size: int, is_short: bool) -> None:
    places = Places("line", range(size))
    for at, (way, sign) in product(range(size), ((Direction.E, 1), (Direction.W, -1))):
        room = size - 1 - at if sign > 0 else at
        for start in range(1, room + 1):
            for number in range(1, room - start + 2):
                header = pack(multicast(start, number, way), TARGETS[0], 64, is_short)
                expected = [at + sign * hop for hop in range(start, start + number)]
                assert delivered(places, at, way, header) == expected


@pytest.mark.parametrize("size", [3, 8])
def test_a_ring_leads_around_to_the_sender(size: int) -> None:
    places = Places("ring", range(size))
    for at, (way, sign) in product(range(size), ((Direction.E, 1), (Direction.W, -1))):
        header = pack(multicast(1, size, way), TARGETS[0], 64, False)
        assert delivered(places, at, way, header) == [(at + sign * hop) % size for hop in range(1, size + 1)]


@pytest.mark.parametrize(("rows", "columns"), [(2, 2), (3, 4), (8, 4)])
def test_every_route_of_a_mesh_leads_to_its_chip(rows: int, columns: int) -> None:
    places = Places("mesh", range(rows * columns), columns)
    for at, to in product(range(rows * columns), repeat=2):
        east, south = to % columns - at % columns, to // columns - at // columns
        if at != to:
            first = (Direction.E if east > 0 else Direction.W) if east else Direction.S if south > 0 else Direction.N
            header = pack(mesh_unicast(east, south), TARGETS[0], 64, False)
            assert delivered(places, at, first, header) == [to]


@pytest.mark.parametrize(("start", "number"), [(0, 1), (1, 0), (-1, 3), (MOST_HOPS, 2), (MOST_HOPS + 1, 1)])
def test_distances_that_no_header_holds(start: int, number: int) -> None:
    with pytest.raises(KernelMisuse, match="use hops 1 to 32"):
        multicast(start, number)


@pytest.mark.parametrize(("east", "south"), [(0, 0), (20, 13), (-33, 0)])
def test_no_way_on_a_mesh(east: int, south: int) -> None:
    with pytest.raises(KernelMisuse, match="give 1 to 32 of both"):
        mesh_unicast(east, south)


@pytest.mark.parametrize("size", [LONG_BYTES, SHORT_BYTES])
def test_a_header_without_a_route_leads_nowhere(size: int) -> None:
    hop = next_hop(bytes(size), Direction.W)
    assert (hop.is_local, hop.ways) == (False, ())


# --- places -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("places", "rank", "neighbours"),
    [
        (Places("line", [0, 1, 2]), 0, {Direction.E: 1}),
        (Places("line", [0, 1, 2]), 1, {Direction.E: 2, Direction.W: 0}),
        (Places("line", [5, 1, 7]), 7, {Direction.W: 1}),
        (Places("ring", [0, 1, 2]), 0, {Direction.E: 1, Direction.W: 2}),
        (Places("neighbor", [0, 1]), 1, {Direction.W: 0}),
        (Places("mesh", range(6), 3), 4, {Direction.E: 5, Direction.W: 3, Direction.N: 1}),
        (Places("mesh", range(9), 3), 4, {Direction.E: 5, Direction.W: 3, Direction.N: 1, Direction.S: 7}),
        (Places("mesh", range(2), 1), 0, {Direction.S: 1}),
    ],
)
def test_neighbours(places: Places, rank: int, neighbours: dict[Direction, int]) -> None:
    assert places.neighbours(rank) == neighbours


@pytest.mark.parametrize(
    ("places", "told"),
    [
        (Places("line", [0, 1, 2]), "0-2"),
        (Places("ring", [3, 0, 1, 5]), "3 0-1 5"),
        (Places("line", [2, 1, 0]), "2 1 0"),
        (Places("mesh", range(6), 3), "0-5 in 3 columns"),
    ],
)
def test_what_a_fabric_says_of_its_chips(places: Places, told: str) -> None:
    assert places.text == told


def test_a_handshake_that_is_too_long_differs_by_its_hash() -> None:
    same = "2025-11 line, 8 and 16 slots of 4352 B, 1 of chips " + " ".join(map(str, range(31, 0, -1)))
    handshakes = {handshake_of(same + end) for end in (" 0 40", " 0 41")}
    assert [len(handshake) for handshake in handshakes] == [HANDSHAKE_BYTES, HANDSHAKE_BYTES]


@pytest.mark.parametrize("size", [3, 5])
def test_one_link_of_a_ring_is_the_dateline_each_way(size: int) -> None:
    places = Places("ring", range(size))
    lines = [(rank, way) for rank in range(size) for way in (Direction.E, Direction.W) if places.is_dateline(rank, way)]
    assert lines == [(0, Direction.W), (size - 1, Direction.E)], "both ends of one link"


def test_a_passing_channel_is_of_one_receiver() -> None:
    """What comes over three links into the router of the fourth has a sender channel each."""
    places = Places("mesh", range(9), 3)
    for onward in Direction:
        orders = {places.order(onward, came) for came in Direction if came is not onward}
        assert orders == {0, 1, 2}
    assert Places("ring", range(3)).order(Direction.E, Direction.W) == 0


# --- layouts ----------------------------------------------------------------------------------------------------

CHOICES = (Slots(sender=8, receiver=16), Slots(sender=4, receiver=8), Slots(sender=2, receiver=2))
BASE = 0x10000


@pytest.mark.parametrize(
    ("room", "senders", "vcs", "expected"),
    [
        (24 * 4400, 1, 1, (8, 16)),
        (24 * 4400 - 1, 1, 1, (4, 8)),
        (32 * 4400, 2, 1, (8, 16)),
        (6 * 4400, 2, 1, (2, 2)),
        (4 * 3 * 4400 + 2 * 8 * 4400, 3, 2, (4, 8)),
    ],
)
def test_the_first_choice_that_fits(room: int, senders: int, vcs: int, expected: tuple[int, int]) -> None:
    """4352 B and 48 B a slot. With two virtual channels all rings are halved."""
    end = BASE + CONTROL_BYTES + room
    found = layout(BASE, end, senders, vcs, CHOICES, 4352, False, False)
    shape = found.shape
    assert (shape.senders, shape.receivers) == ((expected[0],) * senders, (expected[1],) * vcs)
    assert found.end <= end


@pytest.mark.parametrize(
    ("senders", "vcs", "is_short", "sync"), [(2, 1, True, True), (3, 2, False, False), (4, 1, False, False)]
)
def test_nothing_overlaps(senders: int, vcs: int, is_short: bool, sync: bool) -> None:
    found = layout(BASE, BASE + 2**20, senders, vcs, CHOICES, 100, is_short, sync)
    words = [(found.handshake, 96), (found.credits, 16), (found.connection, 32)]
    rings = [found.sender(number) for number in range(senders)] + [found.receiver(vc) for vc in range(vcs)]
    parts = [*words, *((ring.base, ring.slots * ring.slot_bytes) for ring in rings)]
    for (first, nbytes), (second, _) in pairwise(parts):
        assert first + nbytes <= second
    assert (parts[0][0], sum(parts[-1])) == (BASE, found.end)
    assert rings[0].slot_bytes == (32 if is_short else 48) + 112 + 16 * sync
    assert all(address % 16 == 0 for ring in rings for address in ring.addresses())
    assert [rings[0].address(number) for number in (0, rings[0].slots)] == [rings[0].base] * 2


@pytest.mark.parametrize(
    ("role", "room", "senders", "receivers"),
    [
        ("dateline", 28, (4, 8, 0), (16, 0)),
        ("dateline", 27, (4, 8, 0), (8, 0)),
        ("dateline", 19, (4, 4, 4), (8, 8)),
        ("upstream", 28, (4, 0, 8), (16, 0)),
        ("adjacent", 28, (4, 8, 0), (8, 8)),
        ("adjacent", 27, (4, 4, 4), (8, 8)),
    ],
)
def test_spare_slots(role: str, room: int, senders: tuple[int, ...], receivers: tuple[int, ...]) -> None:
    """Of a ring with two virtual channels, 4 and 8 slots each, near a dateline: the worker keeps its 4, the first of
    8 and 16 or 8 and 8 that fits is for the others. Rings stay one behind the other.
    """
    end = BASE + CONTROL_BYTES + 28 * 4400
    plain = layout(BASE, end, 3, 2, CHOICES, 4352, False, False)
    idle = Places("ring", range(4)).idle(role)
    spare = (Slots(sender=8, receiver=16), Slots(sender=8, receiver=8))
    found = plain.with_spare(idle, spare, BASE + CONTROL_BYTES + room * 4400)
    assert (found.shape.senders, found.shape.receivers) == (senders, receivers)
    rings = [*map(found.sender, range(3)), *map(found.receiver, range(2))]
    assert [ring.base for ring in rings[1:]] == [ring.end for ring in rings[:-1]]
    assert rings[-1].end == found.end <= end


def test_roles_near_a_dateline() -> None:
    """Chips 0 and 4 of five are at its ends: their link to each other, their other link, and the far end of that."""
    places = Places("ring", range(5))
    found = [[places.role(chip, way) for way in (Direction.E, Direction.W)] for chip in range(5)]
    assert found == [["upstream", "dateline"], ["", "adjacent"], ["", ""], ["adjacent", ""], ["dateline", "upstream"]]


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(
        KernelMisuse, match="3 sender and 2 receiver channels do not fit in the 4096 B of an Ethernet core"
    ):
        layout(BASE, BASE + 4096, 3, 2, CHOICES, 4352, False, False)
