"""Flows of packets over a fabric. Arguments in JSON: of ``tt.open_fabric``, and a list of flows.

A flow: ``at``, the sender's position; ``start`` and ``number`` of chips, ``way``, or ``east`` and ``south``; ``how``,
``nbytes``, ``packets``. What has come is in ``results`` of the document.
"""

import json
import sys

from sipsim.chips.tensix.fabric import packet
from sipsim.chips.tensix.fabric.connection import FabricSender

FABRIC, FLOWS = map(json.loads, sys.argv[1:3])
PLACE, SEMAPHORES, SOURCE, STRIDE = 0x40000, 0x20000, 0x40000, 0x3000


def send(endpoint, flow, core, number, df):
    at, semaphore, how = PLACE + number * STRIDE, SEMAPHORES + 16 * number, flow.get("how", "write")
    target = {
        "write": lambda: packet.write_to(core, at),
        "increment": lambda: packet.increment_of(core, semaphore, is_flushed=True),
        "fused": lambda: packet.write_and_increment(core, at, core, semaphore),
        "unflushed": lambda: packet.write_and_increment(core, at, core, semaphore, is_flushed=False),
        "scatter": lambda: packet.scatter_to((core, at), (core, at + STRIDE // 2), 48),
    }[how]()
    if "east" in flow:
        route = packet.mesh_unicast(flow["east"], flow["south"])
    else:
        route = packet.multicast(flow["start"], flow.get("number", 1), packet.Direction[flow["way"]])
    fabric = FabricSender(endpoint, df)
    fabric.open()
    for _ in range(flow.get("packets", 1)):
        fabric.send(route, target, SOURCE, 0 if how == "increment" else flow.get("nbytes", 64))
    fabric.close()


def worker(rank, world_size, tt):
    fabric, program, core = tt.open_fabric(**FABRIC), tt.create_program(), tt.workers[-1]
    for number, flow in enumerate(FLOWS):
        if flow["at"] == fabric.position:
            place = tt.workers[number]
            tt.write(place, SOURCE, bytes((number * 37 + each * 3) % 251 for each in range(flow.get("nbytes", 64))))
            endpoint = fabric.connect(place, packet.Direction[flow["way"]].name)
            config = tt.DataMovementConfig(noc=tt.nearer_noc(place, endpoint.router))
            tt.create_kernel(program, send, place, config, (endpoint, flow, core, number))
    tt.enqueue_program(program)
    tt.finish()
    print(f"rank {rank}: {tt.now_ns()} ns")
