"""Second pass of a chip of tiles: its records with their rules, and a memory of all tiles with one address space.

The first pass feeds a record at each issue and each arrival of a command, in the order of simulation. What kernels
store is input; what the chip moves or adds is performed again: NoC reads and writes from the bytes of the second pass,
increments, additions of reductions, and messages of links with a CRC and a number that the message carries.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np

from sipsim.chips.tensix.formats import FORMATS
from sipsim.chips.tensix.memory import ATOMIC_BYTES, PAGE_BYTES, ZEROS, TileMemory
from sipsim.chips.tensix.noc import Core
from sipsim.core.engine import Engine
from sipsim.core.paged_bytes import PagedBytes
from sipsim.records.oplog import record_kind
from sipsim.records.replay import (
    READ,
    WRITTEN,
    Array,
    Feed,
    MakeSecondPass,
    ReplayPe,
    SecondPass,
    Verdict,
    WrongRecord,
    message_crc,
    replays,
)

OFFSET_BITS, Y_BITS = 32, 8
BYTE = np.dtype(np.uint8)


class TileAddress(int):
    """Address of a byte in the space of all tiles of a chip; its text names the tile: ``x-y:address``."""

    def __str__(self) -> str:
        tile, offset = divmod(self, 2**OFFSET_BITS)
        return f"{tile >> Y_BITS}-{tile % 2**Y_BITS}:{offset:#x}"


def flat(core: Core, address: int) -> TileAddress:
    """Return an address of a tile as an address in the space of all tiles."""
    return TileAddress((core.x << Y_BITS | core.y) << OFFSET_BITS | address)


class FlatMemory:
    """Memory of all tiles of a chip, for the second pass. ``place``: the format of a tile's name."""

    place = "tile {}-{}"

    def __init__(self) -> None:
        self._tiles: dict[int, PagedBytes] = {}

    @staticmethod
    def canonical(address: int) -> int:
        """Return the address, as each byte has one."""
        return address

    @staticmethod
    def address_text(address: int) -> str:
        """Return the text of an address."""
        return str(TileAddress(address))

    def read(self, address: int, nbytes: int) -> bytes:
        """Return bytes of a tile."""
        return self._tile(address).read(address % 2**OFFSET_BITS, nbytes)

    def write(self, address: int, data: bytes | memoryview) -> None:
        """Set bytes of a tile."""
        self._tile(address).write(address % 2**OFFSET_BITS, data)

    def clear(self, address: int, nbytes: int) -> None:
        """Set bytes of a tile to 0."""
        self.write(address, bytes(nbytes))

    def pages(self) -> Iterator[tuple[int, bytearray]]:
        """Yield all pages that are not all 0, with their addresses."""
        for tile, content in self._tiles.items():
            for page, data in content.pages.items():
                if data != ZEROS:
                    yield TileAddress(tile << OFFSET_BITS | page * PAGE_BYTES), data

    def _tile(self, address: int) -> PagedBytes:
        tile = self._tiles.get(address >> OFFSET_BITS)
        if tile is None:
            tile = self._tiles[address >> OFFSET_BITS] = PagedBytes(2**OFFSET_BITS, PAGE_BYTES)
        return tile


class _FirstMemory(NamedTuple):
    """Memories of the first pass, to compare with those of the second pass."""

    tiles: list[tuple[Core, TileMemory]]

    def pages(self) -> Iterator[tuple[int, bytes]]:
        """Yield the same as :meth:`FlatMemory.pages`."""
        for core, memory in self.tiles:
            for page, data in memory.pages():
                yield flat(core, page * PAGE_BYTES), data


STORE = record_kind("tile.store", "addr", "nbytes")
READ_CHECK = record_kind("tile.load", "addr", "nbytes")
ISSUE = record_kind("tile.issue", "addr", "nbytes", "result")
MAKE = record_kind("tile.make", "nbytes", "result")
ARRIVE = record_kind("tile.arrive", "addr", "nbytes", "values")
INCREMENT = record_kind("tile.increment", "addr", "increment")
ADD = record_kind("tile.add", "dtype", "addr", "nbytes", "stride", "operands")
MESSAGE = record_kind("tile.message", "addr", "nbytes", "direction", "seq", "due", "crc")
LOST = record_kind("tile.lost", "what")


@replays(STORE, WRITTEN)
def replay_store(pe: ReplayPe, address: int, nbytes: int) -> bytes:
    """Store bytes that a kernel made; only the kernel can make them."""
    data = _recorded(pe)
    pe.write(address, data)
    return data


@replays(READ_CHECK, READ)
def replay_load(pe: ReplayPe, address: int, nbytes: int) -> bytes:
    """Read bytes that leave the tile by the link, or that a router passes on."""
    return pe.read(address, nbytes)


@replays(ISSUE, READ)
def replay_issue(pe: ReplayPe, address: int, nbytes: int, result: str) -> Array:
    """Read the bytes of a NoC command at its issue, or at the far tile of a read."""
    return np.frombuffer(pe.read(address, nbytes), BYTE)


@replays(MAKE)
def replay_make(pe: ReplayPe, nbytes: int, result: str) -> Array:
    """Take the bytes that a router made of a header and of a payload that it has read."""
    return np.frombuffer(_recorded(pe), BYTE)


@replays(ARRIVE, WRITTEN)
def replay_arrive(pe: ReplayPe, address: int, nbytes: int, values: str) -> bytes:
    """Write the bytes of a NoC command at its arrival."""
    data = pe.value(values).tobytes()
    pe.write(address, data)
    return data


@replays(INCREMENT, WRITTEN)
def replay_increment(pe: ReplayPe, address: int, increment: int) -> bytes:
    """Add to a word."""
    value = (int.from_bytes(pe.read(address, ATOMIC_BYTES), "little") + increment) % 2**32
    data = value.to_bytes(ATOMIC_BYTES, "little")
    pe.write(address, data)
    return data


@replays(ADD, WRITTEN)
def replay_add(pe: ReplayPe, dtype: str, address: int, nbytes: int, stride: int, operands: int) -> bytes:
    """Replace the first of several operands by their sum."""
    data = FORMATS[dtype].add([pe.read(address + number * stride, nbytes) for number in range(operands)])
    pe.write(address, data)
    return data


@replays(MESSAGE, WRITTEN)
def replay_message(pe: ReplayPe, address: int, nbytes: int, direction: str, seq: int, due: int, crc: int) -> bytes:
    """Write a message that has arrived over the link.

    Raises:
        WrongRecord: the message is not the one that was sent, or not the one that is due.
    """
    data = _recorded(pe)
    pe.write(address, data)
    if message_crc(address % 2**OFFSET_BITS, seq, direction, data) != crc:
        raise WrongRecord(f"message {seq} of {direction} was changed in transit to {TileAddress(address)}")
    if seq != due:
        raise WrongRecord(f"message {seq} of {direction} has arrived, and message {due} was due")
    return data


@replays(LOST)
def replay_lost(pe: ReplayPe, what: str) -> bytes:
    """Report a command that has not arrived at the end of the run.

    Raises:
        WrongRecord: always.
    """
    raise WrongRecord("the command was issued, and has not arrived at the end of the run")


def _recorded(pe: ReplayPe) -> bytes:
    data = pe.recorded
    if data is None:
        raise WrongRecord("the first pass has recorded no bytes")
    return data if isinstance(data, bytes) else data.tobytes()


class InFlight:
    """Bytes or increment of a NoC command between issue and arrival. ``name``, ``array``: as a handle of the feed.

    ``by``: tile that issued the command. ``place``: address of the bytes or the word; ``text``: name of the command.
    ``arrivals``: number of tiles at which the command has not arrived yet.
    """

    __slots__ = ("__weakref__", "array", "arrivals", "by", "name", "place", "start_ps", "text")

    def __init__(
        self, name: str, array: Array | None, by: Core, start_ps: int, text: str, place: TileAddress, arrivals: int
    ) -> None:
        self.arrivals = arrivals
        self.name = name
        self.array = array
        self.by = by
        self.start_ps = start_ps
        self.text = text
        self.place = place


class Replay:
    """Feed of a chip's second pass, with a method for each record. Without a second pass the chip has no object.

    By direction, ``_sent`` has the number of the next message to send, ``_due`` that of the next message to arrive.
    """

    def __init__(self, make: MakeSecondPass, engine: Engine) -> None:
        self._engine = engine
        self._pass: SecondPass = make(FlatMemory())
        self._feed = Feed(self._pass, lambda: engine.now_ps)
        self._count = 0
        self._open: dict[str, InFlight] = {}
        self._sent: Counter[str] = Counter()
        self._due: Counter[str] = Counter()

    def stored(self, core: Core, address: int, data: bytes) -> None:
        """Feed bytes that a kernel has stored."""
        self._end((STORE, *self._at(core), flat(core, address), len(data)), data)

    def loaded(self, core: Core, address: int, data: bytes) -> None:
        """Feed bytes that were read from L1, to be sent or passed on."""
        self._end((READ_CHECK, *self._at(core), flat(core, address), len(data)), data)

    def issued(self, by: Core, core: Core, address: int, data: bytes, arrivals: int = 1) -> InFlight:
        """Feed the bytes that a NoC command of tile ``by`` has read from tile ``core``. ``arrivals``: tiles to which
        the command writes.
        """
        flight = self._flight(by, data, "bytes", flat(core, address), arrivals)
        self._end((ISSUE, *self._at(by), flight.place, len(data), flight.name), flight)
        return flight

    def made(self, by: Core, data: bytes, arrivals: int = 1) -> InFlight:
        """Feed the bytes that a router of tile ``by`` writes. ``arrivals``: as for :meth:`issued`."""
        flight = self._flight(by, data, "bytes of a router", flat(by, 0), arrivals)
        self._end((MAKE, *self._at(by), len(data), flight.name), flight)
        return flight

    def increment_issued(self, by: Core, core: Core, address: int) -> InFlight:
        """Return the flight of an increment that tile ``by`` has issued; feeds no record."""
        return self._flight(by, None, "increment", flat(core, address))

    def arrived(self, flight: InFlight, core: Core, memory: TileMemory, address: int, nbytes: int) -> None:
        """Feed the arrival of a NoC command's bytes at a tile."""
        flight.arrivals -= 1
        if not flight.arrivals:
            del self._open[flight.name]
        got = memory.get(address, nbytes)
        self._end((ARRIVE, *self._at(flight.by, flight.start_ps), flat(core, address), nbytes, flight.name), got)

    def incremented(self, flight: InFlight, core: Core, memory: TileMemory, address: int, increment: int) -> None:
        """Feed the arrival of an increment."""
        del self._open[flight.name]
        got = memory.get(address, ATOMIC_BYTES)
        self._end((INCREMENT, *self._at(flight.by, flight.start_ps), flat(core, address), increment), got)

    def added(self, core: Core, memory: TileMemory, address: int, dtype: str, nbytes: int, stride: int, n: int) -> None:
        """Feed an addition of ``n`` operands in L1."""
        got = memory.get(address, nbytes)
        self._end((ADD, *self._at(core), dtype, flat(core, address), nbytes, stride, n), got)

    def number(self, direction: str, address: int, data: bytes) -> tuple[int, int]:
        """Return number and CRC of the next message of a direction, for the message to carry."""
        seq = self._sent[direction]
        self._sent[direction] += 1
        return seq, message_crc(address, seq, direction, data)

    def received(self, core: Core, address: int, data: bytes, direction: str, seq: int, crc: int) -> None:
        """Feed the arrival of a message."""
        due = self._due[direction]
        self._due[direction] = seq + 1
        self._end((MESSAGE, *self._at(core), flat(core, address), len(data), direction, seq, due, crc), data)

    def host_wrote(self, core: Core, address: int, data: bytes) -> None:
        """Pass on a write of the host."""
        self._feed.host_wrote(flat(core, address), data)

    def cleared(self, core: Core, address: int, nbytes: int) -> None:
        """Pass on a clearing of memory."""
        self._feed.host_cleared(flat(core, address), nbytes)

    def verdict(self, tiles: Iterable[tuple[Core, TileMemory]]) -> Verdict:
        """Return the result at the end of the run, whose tiles are ``tiles``."""
        for flight in self._open.values() if self._engine.next_ps() is None else ():
            self._end((LOST, *self._at(flight.by, flight.start_ps), f"{flight.text} of {flight.place}"), None)
        self._feed.drain()
        return self._pass.verdict(_FirstMemory(list(tiles)))

    def _flight(self, by: Core, data: bytes | None, text: str, place: TileAddress, arrivals: int = 1) -> InFlight:
        self._count += 1
        name, array = f"c{self._count}", None if data is None else np.frombuffer(data, BYTE)
        flight = self._open[name] = InFlight(name, array, by, self._engine.now_ps, text, place, arrivals)
        return flight

    def _at(self, core: Core, start_ps: int | None = None) -> tuple[int, int, int, int]:
        now_ps = self._engine.now_ps
        return now_ps if start_ps is None else start_ps, now_ps, core.x, core.y

    def _end(self, record: tuple[Any, ...], made: Any) -> None:
        self._feed.end_operation(record, made, record[2], 0)
