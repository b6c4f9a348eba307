"""A host script, no test: packets around a ring, as a file names them.

The first argument in JSON: ``revision`` of the fabric and ``file``. The file in JSON: by position and way a *stream*,
which has ``source`` (bytes in hexadecimal) and ``packets``, each of ``start`` and ``number`` of chips, ``offset`` and
``nbytes`` of the payload in the source, ``target`` and ``counter`` (tile as a number of workers from the last one on,
and address), ``value`` and ``is_flushed``.
"""

import json
import sys
from pathlib import Path

from sipsim.chips.tensix.fabric.connection import FabricSender
from sipsim.chips.tensix.fabric.packet import Direction, increment_of, multicast, write_and_increment

SOURCE = 0x30000


def send(endpoint, packets, df):
    fabric = FabricSender(endpoint, df)
    fabric.open()
    for route, command, offset, nbytes in packets:
        fabric.send(route, command, SOURCE + offset, nbytes)
    fabric.close()


def command(packet, workers):
    (tile, address), (counter_tile, counter) = packet["target"], packet["counter"]
    place = workers[-1 - counter_tile], counter
    value, is_flushed = packet["value"], packet["is_flushed"]
    if not packet["nbytes"]:
        return increment_of(*place, value, is_flushed)
    return write_and_increment(workers[-1 - tile], address, *place, value, is_flushed)


def worker(rank, world_size, tt):
    asked = json.loads(sys.argv[1])
    fabric = tt.open_fabric("ring", revision=asked["revision"])
    program, streams = tt.create_program(), json.loads(Path(asked["file"]).read_text())[fabric.position]
    for core, (way, stream) in zip(tt.workers, sorted(streams.items()), strict=False):
        tt.write(core, SOURCE, bytes.fromhex(stream["source"]))
        endpoint = fabric.connect(core, Direction[way])
        packets = [
            (
                multicast(each["start"], each["number"], Direction[way]),
                command(each, tt.workers),
                each["offset"],
                each["nbytes"],
            )
            for each in stream["packets"]
        ]
        config = tt.DataMovementConfig(noc=tt.nearer_noc(core, endpoint.router))
        tt.create_kernel(program, send, core, config, (endpoint, packets))
    tt.enqueue_program(program)
    tt.finish()
