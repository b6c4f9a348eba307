"""A host script, no test: flows of packets over a fabric, as the first argument says in JSON.

``fabric``: arguments of ``tt.open_fabric``. ``flows``: of each ``at`` (the sender's position), ``way``, ``start`` and
``number`` of chips, or ``east`` and ``south``; ``command``, ``nbytes``, ``packets``. Flow ``n`` has a place and a
semaphore of its own on the last worker of every chip. ``listen``: kernels there wait for the semaphores of flows that
come to them, and look at the data at once. ``programs``: times that all is done.
"""

import json
import sys

from sipsim.chips.tensix.fabric.connection import FabricSender
from sipsim.chips.tensix.fabric.packet import (
    Direction,
    increment_of,
    mesh_unicast,
    multicast,
    scatter_to,
    write_and_increment,
    write_to,
)

BASE, STRIDE, SEMAPHORES, SOURCE = 0x40000, 0x3000, 0x20000, 0x40000


def data(number, nbytes):
    return bytes((number * 37 + each * 3 + 1) % 251 for each in range(nbytes))


def route(flow):
    if "east" in flow:
        return mesh_unicast(flow["east"], flow["south"])
    return multicast(flow["start"], flow.get("number", 1), Direction[flow["way"]])


def first_way(flow):
    if "way" in flow:
        return flow["way"]
    return ("E" if flow["east"] > 0 else "W") if flow["east"] else "S" if flow["south"] > 0 else "N"


def target(number, flow, core):
    place, semaphore = (core, BASE + number * STRIDE), SEMAPHORES + 16 * number
    return {
        "write": lambda: write_to(*place),
        "increment": lambda: increment_of(core, semaphore),
        "increment_flush": lambda: increment_of(core, semaphore, is_flushed=True),
        "fused": lambda: write_and_increment(*place, core, semaphore),
        "fused_no_flush": lambda: write_and_increment(*place, core, semaphore, is_flushed=False),
        "scatter": lambda: scatter_to(place, (core, place[1] + STRIDE // 2), 48),
    }[flow.get("command", "write")]()


def send(endpoint, flows, core, df):
    sender = FabricSender(endpoint, df)
    sender.open()
    for number, flow in flows:
        nbytes = flow.get("nbytes", 64) if not flow.get("command", "").startswith("increment") else 0
        for _ in range(flow.get("packets", 1)):
            sender.send(route(flow), target(number, flow, core), SOURCE + number * STRIDE, nbytes)
    sender.close()


def listen(number, flow, times, df):
    df.noc_semaphore_wait_min(SEMAPHORES + 16 * number, flow.get("packets", 1) * times)
    nbytes = flow.get("nbytes", 64)
    assert df.peek(BASE + number * STRIDE, nbytes) == data(number, nbytes), f"flow {number} is not whole"


def worker(rank, world_size, tt):
    asked = json.loads(sys.argv[1])
    fabric = tt.open_fabric(**asked["fabric"])
    core, flows = tt.workers[-1], list(enumerate(asked["flows"]))
    ways = [way for way in fabric.ways() if any(_leaves(flow, fabric, way) for _, flow in flows)]
    places = {way: tt.workers[index] for index, way in enumerate(ways)}
    endpoints = {way: fabric.connect(place, way) for way, place in places.items()}
    for times in range(1, asked.get("programs", 1) + 1):
        program = tt.create_program()
        for way, place in places.items():
            mine = [(number, flow) for number, flow in flows if _leaves(flow, fabric, way)]
            for number, flow in mine:
                tt.write(place, SOURCE + number * STRIDE, data(number, flow.get("nbytes", 64)))
            config = tt.DataMovementConfig(noc=tt.nearer_noc(place, endpoints[way].router))
            tt.create_kernel(program, send, place, config, (endpoints[way], mine, core))
        for number in asked.get("listen", {}).get(str(fabric.position), ()):
            tt.create_kernel(program, listen, core, tt.DataMovementConfig(1), (number, asked["flows"][number], times))
        tt.enqueue_program(program)
        tt.finish()


def _leaves(flow, fabric, way):
    return flow["at"] == fabric.position and first_way(flow) == way.name
