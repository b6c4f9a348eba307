"""Random packets on a ring of chips, and what each chip must have of them when all is quiet.

A stream is what one worker sends one way. Its packets have places of their own, the same on every chip: bytes of a
payload, and a word that the packet adds its own value to, so that a packet that comes twice, or elsewhere, is seen.
"""

import json
import random
from pathlib import Path
from typing import Any, NamedTuple

from fabric_runs import SCRIPTS, flags
from runs import Run, run

WAYS = {"E": 1, "W": -1}
SOURCE_BYTES, PLACES, COUNTER_BYTES, ALIGNED = 16384, 0x40000, 4, 16
COUNTERS = 0x20000, 0x28000
"""Of even and of odd streams, as a tile has those of its own stream and of the one before it."""
EMPTY, LONG, ELSEWHERE, FLUSHED = 0.2, 0.2, 0.2, 0.5
"""Shares of packets without a payload, with one of any size, with a counter on another tile, and flushed ones."""
LONGEST_SHORT, LONGEST = 256, 4352
MOST_VALUE = 2**16 - 1


class Packet(NamedTuple):
    """From the chip at ``position``, to ``number`` chips from distance ``start`` on. ``target``, ``counter``: tile as a
    number of workers from the last one on, and address.
    """

    position: int
    way: str
    start: int
    number: int
    offset: int
    nbytes: int
    target: tuple[int, int]
    counter: tuple[int, int]
    value: int
    is_flushed: bool

    def reaches(self, size: int) -> list[int]:
        """The positions that it must come to on a ring of ``size`` chips."""
        return [(self.position + WAYS[self.way] * hop) % size for hop in range(self.start, self.start + self.number)]


class Load(NamedTuple):
    """Packets on a ring of ``size`` chips, and the bytes that those of each stream are cut from."""

    size: int
    packets: list[Packet]
    sources: dict[tuple[int, str], bytes]


def drawn(size: int, count: int, seed: int) -> Load:
    """``count`` packets of random chips, ways, routes and payloads."""
    numbers, packets = random.Random(seed), list[Packet]()
    streams = [(position, way) for position in range(size) for way in WAYS]
    ends, sent = dict.fromkeys(streams, PLACES), dict.fromkeys(streams, 0)
    for _ in range(count):
        stream = numbers.choice(streams)
        tile, start = streams.index(stream), numbers.randint(1, size - 1)
        elsewhere = numbers.random() < ELSEWHERE
        packet = Packet(
            *stream,
            start,
            number=numbers.randint(1, size - start),
            offset=numbers.randrange(0, SOURCE_BYTES - LONGEST, ALIGNED),
            nbytes=_payload_bytes(numbers),
            target=(tile, ends[stream]),
            counter=((tile + elsewhere) % len(streams), COUNTERS[tile % 2] + sent[stream] * COUNTER_BYTES),
            value=numbers.randint(1, MOST_VALUE),
            is_flushed=numbers.random() < FLUSHED,
        )
        packets.append(packet)
        ends[stream] += -(-packet.nbytes // ALIGNED) * ALIGNED
        sent[stream] += 1
    return Load(size, packets, {stream: numbers.randbytes(SOURCE_BYTES) for stream in streams})


def _payload_bytes(numbers: random.Random) -> int:
    kind = numbers.random()
    return 0 if kind < EMPTY else numbers.randint(1, LONGEST if kind < EMPTY + LONG else LONGEST_SHORT)


def run_load(load: Load, revision: str, folder: Path, *more: object) -> Run:
    """Send all of it."""
    told: list[dict[str, Any]] = [{} for _ in range(load.size)]
    for (position, way), source in load.sources.items():
        told[position][way] = {"source": source.hex(), "packets": []}
    for packet in load.packets:
        told[packet.position][packet.way]["packets"].append(packet._asdict())
    file = folder / "packets.json"
    file.write_text(json.dumps(told))
    asked = json.dumps({"revision": revision, "file": str(file)})
    return run(*flags(load.size), *more, SCRIPTS / "fabric_load.py", asked)


def wrong(load: Load, done: Run) -> list[str]:
    """A line for each packet and chip where its bytes or its counter are not what they must be; also where it must not
    have come.
    """
    found = []
    for packet in load.packets:
        reached = packet.reaches(load.size)
        source = load.sources[packet.position, packet.way][packet.offset : packet.offset + packet.nbytes]
        for position, member in enumerate(done.members):
            workers, tiles = member.chip.metal.workers, member.chip.tiles
            tile, address = packet.target
            data = tiles.memory(workers[-1 - tile]).read(address, packet.nbytes)
            tile, address = packet.counter
            count = tiles.memory(workers[-1 - tile]).word(address)
            has_come = position in reached
            if (data, count) != ((source, packet.value) if has_come else (bytes(packet.nbytes), 0)):
                found.append(
                    f"on chip {position}, which is {'' if has_come else 'not '}reached: {packet}: adds {count}"
                )
    return found
