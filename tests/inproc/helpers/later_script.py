"""A host script that makes five generations of queue pairs, one after the other at the same addresses. Not a test.

Every second SIP is a neighbour, so no link leads to one. ``FLAGS``: the system that it is for.
"""

SCRIPT = """
import numpy as np
from msgspec.structs import replace
from sipsim.chips.ahbm.collectives.queue_pairs import install
from sipsim.chips.ahbm.host.stream import Work
from sipsim.chips.ahbm.address import PePlace
from sipsim.collectives.call import Call

ABOVE = 2**18


def made(plan, places, table):
    entries = install(plan.system, replace(plan.ipcq, buffer_kind="tcm"), places, table)
    return {place: [moved(entry) for entry in each] for place, each in entries.items()}


def moved(entry):
    peer = entry.peer._replace(rx_base_pa=entry.peer.rx_base_pa + ABOVE)
    return entry._replace(peer=peer, my_rx_base_pa=entry.my_rx_base_pa + ABOVE)


def kernel(ptr, turn, tl):
    own = tl.load(ptr, 64, "i32")
    for way in ("next", "before"):
        tl.send(way, own)
    total = own + tl.recv("before", 64, "i32") + tl.recv("next", 64, "i32")
    tl.store(ptr, total)


def worker(rank, world_size, torch):
    dist = torch.distributed
    dist.init_process_group()
    sip, queue = dist._sip, torch.kernels
    places = [PePlace(member * 2 % world_size, 0, 1) for member in range(world_size)]
    size = len(places)
    table = {r: {"next": (r + 1) % size, "before": (r - 1) % size} for r in range(size)}
    x = torch.zeros((16, 64), dtype="i32")
    x.copy_(torch.from_numpy(np.full((16, 64), rank + 1, np.int32)))
    here = [place for place in places if place.sip == rank]
    for generation in range(1, 6):
        sip.install(generation, made(sip.plan, places, table), places)
        work = Work(queue, "exchange", call=Call(text=f"exchange #{generation}", workers=1))
        work.generation = generation
        queue.launch(work, kernel, (x, generation), here)
        work.wait()
        sip.close(generation)
    expected = np.array([place.sip + 1 for place in places])
    for _ in range(5):
        expected = expected + np.roll(expected, 1) + np.roll(expected, -1)
    assert (x.numpy()[0] == expected[places.index(here[0])]).all()
"""
FLAGS = ("--sips", 5, "--topology", "ring_1d", "--check-invariants")
