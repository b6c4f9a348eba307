"""A host script, no test: random fabrics of the system, one after the other, each opened, used and terminated.

Arguments: seed, number of fabrics. Half of them end when all packets have come, the others under traffic, gracefully or
immediately. A stream is what one worker sends: pairs of a payload and an increment of the stream's counter. Each chip
prints a line of JSON for each fabric: how it ended, the streams, their counters here, what was lost here, what is still
taken. Payloads that came are compared with NumPy here.
"""

import json
import random
import sys

import numpy as np

from sipsim.chips.tensix.fabric.connection import FabricSender, terminate_fabric
from sipsim.chips.tensix.fabric.packet import Direction, increment_of, multicast, write_to
from sipsim.chips.tensix.fabric.termination import Signal

SOURCE, PAYLOADS, COUNTERS = 0x30000, 0x40000, 0x20000
SEED, COUNT = int(sys.argv[1]), int(sys.argv[2])
LINE_ENDS = ["hosts", "kernel"]
"""Who signals gracefully: each chip's host script, or a kernel on the first chip of a line."""


def drawn(numbers, sips, links):
    """One fabric: its arguments, its streams, whether it ends quietly, gracefully or immediately, and a time in ns."""
    topology = numbers.choice(["line", "line", "ring", "neighbor"])
    first, size = 0, sips
    if topology != "ring":
        first = numbers.randrange(sips - 1)
        size = numbers.randint(2, sips - first)
    streams = []
    num_links = numbers.randint(1, links)
    for position in range(size):
        for way in "EW":
            reach = size - 1 if topology == "ring" else size - 1 - position if way == "E" else position
            reach = min(reach, 1) if topology == "neighbor" else reach
            if reach and numbers.random() < 0.7:
                start = numbers.randint(1, reach)
                stream = {"at": first + position, "way": way, "link": numbers.randrange(num_links), "start": start}
                stream |= {"number": numbers.randint(1, reach - start + 1), "packets": numbers.randint(1, 30)}
                streams.append(stream | {"nbytes": 16 * numbers.randint(1, 60)})
    revision = numbers.choice(["2025-03", "2025-11"] if topology == "ring" else ["2024-11", "2025-03", "2025-11"])
    chips = list(range(first, first + size))
    fabric = {"topology": topology, "chips": chips, "revision": revision, "num_links": num_links}
    end = numbers.choice(["quiet", "quiet", "graceful", "immediate"])
    return fabric, streams, end, numbers.choice(LINE_ENDS), numbers.randint(0, 8000)


def reached(stream, fabric):
    """The chips that a stream comes to."""
    chips, sign = fabric["chips"], 1 if stream["way"] == "E" else -1
    hops = range(stream["start"], stream["start"] + stream["number"])
    return {chips[(chips.index(stream["at"]) + sign * hop) % len(chips)] for hop in hops}


def payload(number, index, nbytes):
    return (np.arange(nbytes) * 7 + number * 11 + index * 3 + 1).astype(np.uint8)


def send(endpoint, stream, target, counter, df):
    sender = FabricSender(endpoint, df)
    sender.open()
    route = multicast(stream["start"], stream["number"], Direction[stream["way"]])
    for _ in range(stream["packets"]):
        sender.send(route, target, SOURCE, stream["nbytes"])
        sender.send(route, counter, 0, 0)
    sender.close()


def collect(counter, packets, df):
    df.noc_semaphore_wait(counter, packets)


def stop(words, after_ns, df):
    df.instructions(after_ns)
    for core, address in words:
        df.noc_semaphore_inc(df.get_noc_addr(*core, address), int(Signal.IMMEDIATELY_TERMINATE))


def signal_all(endpoint, infos, df):
    sender = FabricSender(endpoint, df)
    sender.open()
    terminate_fabric(sender, infos, Signal.GRACEFULLY_TERMINATE, df)


def one_life(number, rank, tt, arguments, streams, end, who, after_ns):
    """Open a fabric, send and end it; return the fabric and what was lost here."""
    fabric, program, last = tt.open_fabric(**arguments), tt.create_program(), tt.workers[-1]
    for index, stream in enumerate(streams):
        core, counter = tt.workers[index], COUNTERS + 16 * number
        if stream["at"] == rank:
            tt.write(core, SOURCE, payload(number, index, stream["nbytes"]).tobytes())
            endpoint = fabric.connect(core, stream["way"], stream["link"])
            args = (endpoint, stream, write_to(core, PAYLOADS), increment_of(core, counter))
            tt.create_kernel(program, send, core, args=args)
        elif end == "quiet" and rank in reached(stream, arguments):
            tt.create_kernel(program, collect, core, args=(counter, stream["packets"]))
    if end == "immediate":
        words = [(router.core, router.layout.termination) for router in fabric.routers]
        tt.create_kernel(program, stop, last, args=(words, after_ns))
    tt.enqueue_program(program)
    if end != "immediate" and (who == "hosts" or fabric.topology != "line"):
        return fabric, fabric.terminate()
    if end != "immediate" and fabric.position == 0:
        program, infos = tt.create_program(), fabric.generate_ordered_termination_info_farthest_to_nearest()
        tt.create_kernel(program, signal_all, last, args=(fabric.connect(last, "forward"), infos))
        tt.enqueue_program(program)
    return fabric, fabric.wait_until_terminated()


def worker(rank, world_size, tt):
    numbers, links = random.Random(SEED), len(tt.ethernet_cores_to((rank + 1) % world_size))
    tiles, launches = tt._chip.tiles, tt._chip.launches
    for number in range(COUNT):
        arguments, streams, end, who, after_ns = drawn(numbers, world_size, links)
        if rank not in arguments["chips"]:
            continue
        fabric, lost = one_life(number, rank, tt, arguments, streams, end, who, after_ns)
        taken = [str(core) for core in fabric.cores if tiles.memory(core).reserved or launches.is_used(core)]
        counted = [tiles.memory(tt.workers[index]).word(COUNTERS + 16 * number) for index in range(len(streams))]
        for index, stream in enumerate(streams):
            if counted[index]:
                found = np.frombuffer(tt.read(tt.workers[index], PAYLOADS, stream["nbytes"]), np.uint8)
                assert (found == payload(number, index, stream["nbytes"])).all(), (number, index)
        comes = [sorted(reached(stream, arguments)) for stream in streams]
        dropped = [[each.origin[:3], each.ranks, each.places[0]] for each in lost]
        print("LIFE", json.dumps([number, rank, end, streams, comes, counted, dropped, taken]))
    print("LEFT", json.dumps([rank, len(tt._chip.fabrics)]))
