"""Repeats a table of runs and compares each with its record: did a change of the program change what it does?

    python scripts/same_results.py                         this checkout against the record
    python scripts/same_results.py --tree /other/checkout  another checkout's code, with this table and this record
    python scripts/same_results.py --only 'rules/'         some of the runs
    python scripts/same_results.py --record                write the record anew, after a change that was meant

The record, ``same_results.json``, has two parts a run. ``results``: exit codes, what ``--json`` says of collectives,
ranks and the error, files that the run wrote, files that it left behind. ``messages``: standard output, standard
error, the error's message. Both must be the same; ``--ignore-messages`` shows differences of messages without
failing for them. Left out, because they differ between equal runs: digests (they cover the version of the program),
process ids, host times, counts of grants; and what ranks have done in a run that failed while each had a process of
its own, because they stop wherever they are, unless it is a deadlock.

Nothing here names a module of the simulator but ``launcher``, the command line: ``python -m launcher`` and, by
``[project.scripts]`` of the tree's ``pyproject.toml``, ``ahbm-probe``. Needs the Python of an environment that has the
dependencies, such as ``.venv/bin/python``.
"""

import argparse
import difflib
import itertools
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve()
RECORD = HERE.with_suffix(".json")
STEP_S = 90.0
"""No command takes as long; one that does is killed, and its run is a failure."""

Json = Any
Observed = dict[str, Json]

# --- files that the runs need; each run has copies of its own -----------------------------------------------------

RING = """
import numpy as np


def kernel_args(world_size, n_elem):
    return n_elem, world_size


def reference(tensors, system):
    rows = np.concatenate(tensors)
    sums = []
    for rank in range(len(rows)):
        total = rows[rank]
        for back in range(1, len(rows)):
            total = total + rows[rank - back]
        sums.append(total)
    return np.split(np.array(sums), len(tensors))


def kernel(t_ptr, n_elem, world_size, tl):
    itemsize = t_ptr.dtype.itemsize
    row = t_ptr + tl.program_id(1) * n_elem * itemsize
    n_slots, slot_size = tl.ipcq_slots("E")
    chunk = slot_size // itemsize
    for start in range(0, n_elem, chunk):
        here, length = row + start * itemsize, min(chunk, n_elem - start)
        total = moving = tl.load(here, length)
        for _ in range(world_size - 1):
            tl.send("E", moving)
            moving = tl.recv("W", length, t_ptr.dtype)
            total = total + moving
        tl.store(here, total)
"""

TABLES = '''
"""An all-reduce on whatever table of neighbours is configured, for four ranks in a square, or any number in a line."""


def kernel_args(world_size, n_elem, system):
    return n_elem, world_size


def kernel(t_ptr, n_elem, world_size, tl):
    itemsize = t_ptr.dtype.itemsize
    ways = [way for way in "E W N S parent child_left child_right".split() if tl.has_direction(way)]
    most = tl.ipcq_slots(ways[0])[1] // itemsize
    for at in range(0, n_elem, most):
        place = t_ptr + (tl.program_id(1) * n_elem + at) * itemsize
        tl.store(place, exchange(tl.load(place, min(most, n_elem - at)), ways, tl))


def exchange(total, ways, tl):
    if "parent" in ways or "child_left" in ways:
        return tree(total, ways, tl)
    if "N" not in ways and "S" not in ways:
        return around(total, "E", "W", tl.world_size(), tl)
    for towards, back in (("E", "W"), ("S", "N")):
        total = around(total, towards, back, 2, tl) if len(ways) == 4 else along(total, towards, back, ways, tl)
    return total


def around(total, towards, back, size, tl):
    moving = total
    for _ in range(size - 1):
        tl.send(towards, moving)
        moving = tl.recv(back, total.shape, total.dtype)
        total = total + moving
    return total


def along(total, towards, back, ways, tl):
    if back in ways:
        total = total + tl.recv(back, total.shape, total.dtype)
    if towards in ways:
        tl.send(towards, total)
        total = tl.recv(towards, total.shape, total.dtype)
    if back in ways:
        tl.send(back, total)
    return total


def tree(total, ways, tl):
    children = [way for way in ("child_left", "child_right") if way in ways]
    for child in children:
        total = total + tl.recv(child, total.shape, total.dtype)
    if "parent" in ways:
        tl.send("parent", total)
        total = tl.recv("parent", total.shape, total.dtype)
    for child in children:
        tl.send(child, total)
    return total
'''

LINE = """
TOPO_NAME_TO_KIND = {"ring_1d": 0, "torus_2d": 0, "mesh_2d_no_wrap": 0}


def neighbors(rank, world_size, neighbor_map):
    ways = {"W": rank - 1, "E": rank + 1}
    return {way: other for way, other in ways.items() if 0 <= other < world_size}


def kernel_args(world_size, n_elem, system):
    return n_elem, system.n_cubes, world_size


def kernel(t_ptr, n_elem, n_cubes, n_sips, sip_rank, sip_topo_kind, sip_topo_w, sip_topo_h, tl):
    cube = tl.program_id(1)
    place, last = sip_rank * n_cubes + cube, n_sips * n_cubes - 1
    shard = t_ptr + cube * n_elem * t_ptr.dtype.itemsize
    total = tl.load(shard, n_elem)
    if place > 0:
        total = total + tl.recv("W", n_elem, t_ptr.dtype)
    if place < last:
        tl.send("E", total)
        total = tl.recv("E", n_elem, t_ptr.dtype)
    if place > 0:
        tl.send("W", total)
    tl.store(shard, total)
"""

BURST = '''
"""Sends all chunks before it receives one: a deadlock as soon as a row has more chunks than a ring has slots."""
from ring import kernel_args


def kernel(t_ptr, n_elem, world_size, tl):
    itemsize = t_ptr.dtype.itemsize
    row = t_ptr + tl.program_id(1) * n_elem * itemsize
    chunk = tl.ipcq_slots("E")[1] // itemsize
    chunks = [(row + start * itemsize, min(chunk, n_elem - start)) for start in range(0, n_elem, chunk)]
    totals = moving = [tl.load(here, length) for here, length in chunks]
    for _ in range(world_size - 1):
        for values in moving:
            tl.send("E", values)
        moving = [tl.recv("W", values.shape, values.dtype) for values in moving]
        totals = [total + values for total, values in zip(totals, moving)]
    for (here, _), total in zip(chunks, totals):
        tl.store(here, total)
'''

COLLECTIVES = """
import numpy as np


def worker(rank, world_size, torch):
    dist = torch.distributed
    dist.init_process_group(backend="ahbm")
    assert (dist.get_rank(), dist.get_world_size(), dist.is_initialized()) == (rank, world_size, True)
    whole, half = torch.full((2, 8), rank + 1, dtype="i32"), torch.ones((4, 700), dtype="f16")
    real = torch.zeros(2, 3000, dtype="f32")
    real.copy_(torch.from_numpy(np.random.default_rng(rank).standard_normal(real.shape)))
    dist.all_reduce(whole)
    dist.all_reduce(half, op="sum")
    works = [dist.all_reduce(each, async_op=True) for each in (real, whole)]
    print([work.is_completed() for work in works])
    works[1].wait()
    works[0].wait()
    print(rank, whole.numpy()[0, 0], half.numpy()[0, 0], float(real.numpy()[0, 0]))
    print(dist.pointer_dump())
"""

KERNELS = '''
"""Words of kernels: sends from addresses and handles, receives that wait, come later, copy, or take any direction."""
import numpy as np


def words(rows, spare, tl):
    me, size = tl.rank(), tl.world_size()
    mine, place = rows + tl.program_id(1) * 16, spare + tl.program_id(1) * 16
    tl.send("E", src_addr=mine, shape=4)
    tl.send("W", tl.load(mine, 4))
    later = tl.recv_async("W", 4, "i32")
    from_east = tl.recv("E", 4, "i32", dst_addr=place)
    from_west = tl.wait(later)
    assert later.is_completed()
    assert from_west.array[0] == (me - 1) % size
    assert from_east.array[0] == tl.load(place, 4).array[0] == (me + 1) % size
    tl.send("E", from_west)
    anything = tl.recv(shape=4, dtype="i32")
    assert anything.array[0] == (me - 2) % size
    assert tl.last_polled_dir == "W"
    tl.store(mine, tl.add(anything, from_east))


def shows(tl):
    print("rank", tl.rank(), "of", tl.world_size(), [tl.program_id(axis) for axis in range(3)],
          [tl.num_programs(axis) for axis in range(3)], tl.has_direction("E"), tl.has_direction("N"),
          tl.ipcq_slots("E"))


def left_over(rows, tl):
    for element in range(3):
        tl.send("E", src_addr=rows + tl.program_id(1) * 16 + element * 4, shape=1)
    tl.recv("W", 1, "i32")


def worker(rank, world_size, torch):
    rows = torch.zeros(2, 4, dtype="i32")
    rows.copy_(torch.from_numpy(np.array([[rank * 2] * 4, [rank * 2 + 1] * 4])))
    started = torch.launch(words, rows, torch.zeros(2, 4, dtype="i32"), async_op=True)
    started.wait()
    torch.launch(shows)
    torch.launch(left_over, rows)
    print(rows.numpy().tolist())
    print(torch.distributed.pointer_dump())
'''

STATE = '''
"""What a rank draws and counts is its own: globals, modules beside the script, both random generators."""
import random

import counter
import numpy as np


def worker(rank, world_size, torch):
    torch.distributed.init_process_group()
    for turn in range(3):
        mine = [counter.count(), random.random(), np.random.rand(), random.randint(0, 9)]
        tensor = torch.zeros((2, 4), dtype="f32")
        tensor.copy_(torch.from_numpy(np.tile(mine, (2, 1))))
        torch.distributed.all_reduce(tensor)
        print(rank, turn, mine, tensor.numpy()[0].tolist())
'''

MISTAKES = '''
"""What a kernel of SIP 1 does wrong; the word after the script chooses."""
import sys


def direction(t_ptr, tl):
    tl.send("N", tl.load(t_ptr, 4))


def large(t_ptr, tl):
    tl.send("E", tl.load(t_ptr, 4096))


def size(t_ptr, tl):
    tl.send("E", tl.load(t_ptr, 4))
    tl.recv("W", 8, "f16")


def dtype(t_ptr, tl):
    tl.send("E", tl.load(t_ptr, 4))
    tl.recv("W", 2, "f32")


def outside(t_ptr, tl):
    tl.load(t_ptr + 4096, 4096)


def number(t_ptr, tl):
    tl.load(t_ptr, 4) + 1


def word(t_ptr, tl):
    tl.subtract(tl.load(t_ptr, 4), 1)


def divides(t_ptr, tl):
    tl.load(t_ptr, 4)
    1 / (tl.program_id(2) - 1)


def generator(t_ptr, tl):
    yield


def quiet(t_ptr, tl):
    pass


def chosen(t_ptr, name, tl):
    globals()[name](t_ptr, tl)


def worker(rank, world_size, torch):
    tensor = torch.zeros(2, 4096, dtype="f16")
    if sys.argv[1] == "generator":
        torch.launch(generator, tensor)
    torch.launch(chosen, tensor, sys.argv[1] if rank == 1 or sys.argv[1] in ("size", "dtype") else "quiet")
'''

API = '''
"""Wrong calls of the host API by SIP 0; the word after the script chooses."""
import sys

WRONG = {
    "op": lambda torch: torch.distributed.all_reduce(torch.ones(2, 8), op="max"),
    "dtype": lambda torch: torch.zeros(2, 8, dtype="f64"),
    "rows": lambda torch: torch.ones(3, 8),
    "shape": lambda torch: torch.zeros(0, 8),
    "policy": lambda torch: torch.zeros(16, 8, dp=DPPolicy()),
    "split": lambda torch: DPPolicy(pe="split"),
    "copy": lambda torch: torch.zeros(2, 8).copy_(torch.from_numpy(torch.zeros(2, 4).numpy())),
    "twice": lambda torch: torch.distributed.init_process_group(),
    "backend": lambda torch: torch.distributed.init_process_group(backend="nccl"),
    "room": lambda torch: torch.zeros(2, 2**31, dtype="f32"),
}


def worker(rank, world_size, torch):
    if sys.argv[1] != "backend":
        torch.distributed.init_process_group()
    if rank == 0:
        WRONG[sys.argv[1]](torch)
'''

ENDS = '''
"""Ways in which the script of one rank ends, after a first collective."""
import os
import sys
import time


def inner(key):
    return {"a": 1}[key]


def worker(rank, world_size, torch):
    torch.distributed.init_process_group()
    torch.distributed.all_reduce(torch.ones(2, 8))
    how = sys.argv[1] if rank == 1 else "goes on"
    print("rank", rank, how, flush=True)
    if how == "raises":
        inner("b")
    elif how == "exits":
        sys.exit("no licence")
    elif how == "returns":
        return
    elif how == "dies":
        os._exit(7)
    elif how == "sleeps":
        time.sleep(600)
    torch.distributed.all_reduce(torch.ones(2, 8))
'''

FORGOT = '''
"""Rank 0 should pass its row along a line; the last but one forgets to."""


def pass_on(t_ptr, tl):
    values = tl.load(t_ptr, 4) if tl.rank() == 0 else tl.recv("W", 4, t_ptr.dtype)
    if tl.rank() < tl.world_size() - 2:
        tl.send("E", values)


def worker(rank, world_size, torch):
    torch.launch(pass_on, torch.zeros(2, 4))
'''

DOCUMENTED = """
import numpy as np


def worker(rank, world_size, torch):
    dist = torch.distributed
    dist.init_process_group(backend="ahbm")
    init = np.full((16, 1024), rank + 1, dtype=np.float16)
    dp = DPPolicy(cube="row_wise", pe="replicate", num_cubes=16, num_pes=1)
    tensor = torch.zeros((16, 1024), dtype="f16", dp=dp)
    tensor.copy_(torch.from_numpy(init))
    dist.all_reduce(tensor, op="sum")
    print(rank, tensor.numpy()[0, 0])
"""

PART = """
import sys

from . import BASE


def worker(rank, world_size, torch):
    print(rank, world_size, BASE, sys.argv[1:])
"""

CUSTOM = """
system:
  sips:
    count: 3
    topology: custom
    link: ethernet_400g
    custom_links: [{a: 0, a_port: E, b: 1, b_port: W}, {a: 1, a_port: S, b: 2, b_port: N}]
sip: {cube_mesh: {w: 2, h: 1}}
"""

SSH = '#!/bin/sh\nwhile case $1 in -o) shift;; -*) true;; *) false;; esac; do shift; done\nshift\nexec sh -c "$*"\n'
"""Takes the place of ssh: every host is this one."""

FILES = {
    "small.yaml": "sip: {cube_mesh: {w: 2, h: 1}}\n",
    "slow.yaml": "router: {overhead_ns: 2.5}\nhbm: {kind: null, read_latency_ns: 40}\nsip: {cube_mesh: {w: 3, h: 2}}\n"
    "links: {ucie: {params: {retimer_ns: 15.5}}}\n",
    "custom.yaml": CUSTOM,
    "ring.yaml": "defaults: {algorithm: ring}\nalgorithms:\n"
    "  ring: {module: ring.py, topology: ring_1d, rank_per: cube}\n",
    "tables.yaml": "defaults: {algorithm: tables}\nalgorithms:\n"
    "  tables: {module: tables.py, topology: ring_1d, rank_per: cube}\n",
    "line.yaml": "defaults: {algorithm: line}\nalgorithms:\n  line: {module: line.py, topology: none}\n",
    "burst.yaml": "defaults: {algorithm: burst}\nalgorithms:\n"
    "  burst: {module: burst.py, topology: ring_1d, rank_per: cube, n_slots: 2}\n",
    "ring.py": RING,
    "tables.py": TABLES,
    "line.py": LINE,
    "burst.py": BURST,
    "wrong.py": RING.replace('tl.send("E", moving)', 'tl.send("E", total)'),
    "no_args.py": "def kernel(t_ptr, tl):\n    pass\n",
    "short.py": "from ring import kernel\n\n\ndef kernel_args(world_size, n_elem):\n    return (n_elem,)\n",
    "broken.py": "def kernel(:\n",
    "clash.py": "from ring import kernel, kernel_args\n\n\ndef neighbors(rank, world_size, neighbor_map):\n"
    "    return {'E': 0} if rank else {'E': 1}\n",
    "collectives.py": COLLECTIVES,
    "kernels.py": KERNELS,
    "state.py": STATE,
    "counter.py": "STATE = []\n\n\ndef count():\n    STATE.append(0)\n    return len(STATE)\n",
    "mistakes.py": MISTAKES,
    "api.py": API,
    "ends.py": ENDS,
    "forgot.py": FORGOT,
    "documented.py": DOCUMENTED,
    "no_worker.py": "def work(rank):\n    pass\n",
    "package/__init__.py": "BASE = 40\n",
    "package/part.py": PART,
    "bad_key.yaml": "system: {sips: {count: 3, topologie: ring_1d}}\n",
    "bad_value.yaml": "system: {sips: {count: three}}\n",
    "bad_yaml.yaml": "system: {sips: {count: 3\n",
    "twice.yaml": "system: {sips: {count: 3}}\nsystem: {}\n",
    "wrong_file.yaml": "defaults: {n_slots: 4}\n",
    "bool.yaml": "defaults: {strict_validation: on}\n",
    "ssh": SSH,
}

OUTPUTS = ("out.csv", "trace.csv", "logs/rank-0.log", "logs/rank-1.log")
"""Files that runs are told to write, and that are results."""

# --- the table ----------------------------------------------------------------------------------------------------

TABLE = """
[systems]
ring of 1           inproc --sips 1
ring of 2           inproc --sips 2 --link ethernet_100g
ring of 3           inproc --sips 3 --config slow.yaml --bytes 12K
ring of 5           inproc --sips 5 --config small.yaml --bytes 4K
torus of 4          inproc --sips 4 --topology torus_2d
torus 3x2           inproc --sips 6 --topology torus_2d --shape 3x2 --link ethernet_100g --bytes 64K,256K --dtype f32
torus 1x3           inproc --sips 3 --topology torus_2d --shape 1x3 --config small.yaml --bytes 4K
torus of 9          inproc --sips 9 --topology torus_2d --config small.yaml --bytes 4K
torus of 16         inproc --sips 16 --topology torus_2d --config small.yaml --bytes 4K --link ethernet_400g
mesh 3x2            inproc --sips 6 --topology mesh_2d_no_wrap --shape 3x2 --config small.yaml --bytes 8K
mesh of 9           inproc --sips 9 --topology mesh_2d_no_wrap --config small.yaml --bytes 4K --link ethernet_100g
custom              inproc --config custom.yaml --ccl ring.yaml --bytes 4K
ports and mesh      inproc --sips 3 --set 'sip.cube_mesh={w: 3, h: 3}' \
 --set 'sip.ports={E: 2, W: 6}' --bytes 9K -v
link and routers    inproc --sips 2 --config small.yaml --set links.ucie.params.retimer_ns=9 --set router.overhead_ns=2

[work]
f32                 inproc --sips 4 --config small.yaml --dtype f32 --bytes 20K
i32                 inproc --sips 4 --config small.yaml --dtype i32 --op sum --bytes 20K --seed 7
sweep               inproc --sips 2 --config small.yaml -b 1K -e 64K -f 4 -n 2 -w 1 --csv out.csv
sizes               inproc --sips 3 --topology ring_1d --config small.yaml --bytes 32,1K,1M
elements            inproc --sips 2 --n-elem 1,2,77,5000
not verified        inproc --sips 2 --config small.yaml --no-verify-data --collective intercube
trace               inproc --sips 2 --config small.yaml --ccl ring.yaml --bytes 64 -q --trace-ccl trace.csv
invariants          inproc --sips 4 --topology torus_2d --config small.yaml --bytes 128K --check-invariants
verbose and quiet   inproc --sips 2 --config small.yaml --bytes 1K -v ; inproc --sips 2 --config small.yaml -q

[knobs]
one line an edge    inproc --sips 4 --config small.yaml --set defaults.virtual_channels=false
chunks and weights  inproc --sips 2 --config small.yaml --set 'defaults={vc_chunk_size: 64, vc_comm_weight: 20}'
credit channel      inproc --sips 2 --ccl ring.yaml --config small.yaml \
 --set 'defaults={credit_return_mode: fabric, credit_virtual_channel: true}'
strict hardware     inproc --sips 4 --config small.yaml --set defaults.hw_strict=true
one slot            inproc --sips 3 --config small.yaml --ccl ring.yaml --set algorithms.ring.n_slots=1
odd slots           inproc --sips 3 --config small.yaml --check-invariants \
 --set 'defaults={n_slots: 3, slot_size: 1000}'
slow poll           inproc --sips 2 --config small.yaml --set 'defaults={backpressure: poll, poll_interval_ns: 55}'
slow piggyback      inproc --sips 2 --config small.yaml --ccl ring.yaml \
 --set 'defaults={credit_return_mode: piggyback, piggyback_wait_ns: 7}'
large credits       inproc --sips 2 --config small.yaml \
 --set 'defaults={credit_return_mode: fabric, ipcq_credit_size_bytes: 200}'

[processes]
torus               zmq --sips 4 --topology torus_2d
torus by datagrams  unix --sips 4 --topology torus_2d
ring of 3           zmq --sips 3 --config small.yaml --link ethernet_100g --bytes 32K,64K
mesh by datagrams   unix --sips 6 --topology mesh_2d_no_wrap --shape 3x2 --config small.yaml --check-invariants
ring of 8           unix --sips 8 --config small.yaml --bytes 4K --dtype i32
one                 zmq --sips 1 --config small.yaml
custom              zmq --config custom.yaml --ccl ring.yaml --bytes 4K --trace-ccl trace.csv
modes               unix --sips 2 --config small.yaml \
 --set 'defaults={credit_return_mode: piggyback, buffer_kind: hbm, backpressure: poll}'
agents              launch --engine ssh --hosts a:2,b:2 --bind 127.0.0.1 --sips 4 --config small.yaml --bytes 4K
logs                zmq --sips 2 --tee none --log-dir logs documented.py ; zmq --sips 2 --tee 1 documented.py

[tables]
ring_1d             inproc --config small.yaml --ccl tables.yaml --bytes 20K
ring_1d_unidir      inproc --config small.yaml --ccl tables.yaml --set algorithms.tables.topology=ring_1d_unidir
mesh_2d             inproc --config small.yaml --ccl tables.yaml --set algorithms.tables.topology=mesh_2d
torus_2d            inproc --config small.yaml --ccl tables.yaml --set algorithms.tables.topology=torus_2d
mesh_2d_no_wrap     inproc --config small.yaml --ccl tables.yaml --set algorithms.tables.topology=mesh_2d_no_wrap
tree_binary         inproc --sips 3 --config small.yaml --ccl tables.yaml --set algorithms.tables.topology=tree_binary
a rank a PE         inproc --config small.yaml --ccl tables.yaml --set algorithms.tables.rank_per=pe --no-verify-data
neighbors           inproc --sips 4 --topology torus_2d --config small.yaml --ccl line.yaml --bytes 1K
neighbors, local    zmq --sips 3 --config small.yaml --ccl line.yaml --bytes 1K

[scripts]
documented          inproc --sips 4 --topology torus_2d documented.py
collectives         inproc --sips 3 --config small.yaml collectives.py
collectives, local  zmq --sips 3 --config small.yaml collectives.py
collectives, ring   unix --sips 2 --config small.yaml --ccl ring.yaml collectives.py
kernels             inproc --sips 2 --config small.yaml --ccl ring.yaml --check-invariants kernels.py
kernels, local      zmq --sips 2 --config small.yaml --ccl ring.yaml kernels.py
kernels, piggyback  inproc --sips 3 --config small.yaml --ccl ring.yaml \
 --set algorithms.ring.credit_return_mode=piggyback kernels.py
state               inproc --sips 2 --config small.yaml --seed 3 state.py
state, local        unix --sips 2 --config small.yaml --seed 3 state.py
module              inproc --sips 2 --config small.yaml -m package.part 7 --bytes
returns early       inproc --sips 1 --config small.yaml -- ends.py returns

[probe]
in a cube           probe --from 0.0.0 --to 0.0.5 --bytes 64
across cubes        probe --from 0.0.0 --to 0.1.0 --bytes 4096 --config small.yaml
across SIPs         probe --from 0.0.0 --to 1.3.0 --bytes 4096 --sips 4 --topology torus_2d --link ethernet_100g
hbm, fabric         probe --from 0.0.0 --to 0.15.7 --bytes 1024 \
 --set 'defaults={buffer_kind: hbm, credit_return_mode: fabric}'
piggyback, strict   probe --from 1.0.0 --to 0.2.0 --set 'defaults={credit_return_mode: piggyback, hw_strict: true}'
no such PE          probe --from 0.0.0 --to 9.0.0
odd bytes           probe --from 0.0.0 --to 0.1.0 --bytes 63
no such link        probe --from 0.0.0 --to 0.1.0 --link ethernet

[lists]
all                 launch --list topologies ; launch --list links ; launch --list collectives ; \
 launch --list algorithms ; launch --list tables ; launch --list engines
help                launch --help ; probe --help
dry run             launch --dry-run --sips 4 --topology torus_2d
dry run, script     launch --dry-run --ccl ring.yaml --config small.yaml documented.py
version             launch --version ; probe --version

[refusals]
misspelt flag       launch --sipz 4
unknown flag        launch --zzz=1
no number           launch --sips four
no square           launch --sips 6 --topology torus_2d
wrong shape         launch --sips 6 --topology torus_2d --shape 2x2
topology            launch --topology torus2d
link                launch --link ethernet
dtype and op        launch --dtype f64 ; launch --op max
engine              launch --engine sulrm
collective          launch --collective all_gathre
two sizes           launch --bytes 1K --n-elem 2 ; launch -b 4K -e 1K ; launch --bytes 1000
set                 launch --set system.sips.cuont=3 ; launch --set system.sips.count=2.5 ; launch --set a
set a knob          launch --ccl ring.yaml --set algorithms.ring.buffer_kind=dram ; launch --set defaults.n_slots=4096
strict hardware     launch --set 'defaults={hw_strict: true, n_slots: 3}' ; \
 launch --set defaults.credit_virtual_channel=true
bad config          launch --config bad_key.yaml ; launch --config bad_value.yaml ; launch --config bad_yaml.yaml
bad config, more    launch --config twice.yaml ; launch --config wrong_file.yaml ; launch --ccl bool.yaml
no such file        launch --config nowhere.yaml ; launch nowhere.py ; launch -m no.such.module ; launch no_worker.py
bad module          launch --ccl ring.yaml --set algorithms.ring.module=no_args.py ; \
 launch --ccl ring.yaml --set algorithms.ring.module=short.py ; \
 launch --ccl ring.yaml --set algorithms.ring.module=broken.py ; \
 launch --ccl ring.yaml --set algorithms.ring.module=no.such.module
bad wiring          launch --ccl ring.yaml --set algorithms.ring.module=clash.py ; \
 launch --sips 3 --config small.yaml --ccl ring.yaml --set algorithms.ring.topology=mesh_2d ; \
 launch --config custom.yaml
flags and engine    inproc --max-restarts 1 ; inproc --fault kill:1@1us ; launch --hosts a,b ; launch --tee 7
faults              launch --fault kil:1@1us ; launch --fault kill:7@1us ; launch --fault kill:1@soon ; \
 launch --fault slow:1@1us ; launch --fault cut:a@1s
outputs             launch --csv no/such/folder/a.csv ; launch --resume nowhere

[rules]
direction           inproc --config small.yaml --ccl ring.yaml -q mistakes.py direction
direction, local    zmq --config small.yaml --ccl ring.yaml -q mistakes.py direction
too large           inproc --config small.yaml --ccl ring.yaml -q mistakes.py large
too large, local    unix --config small.yaml --ccl ring.yaml -q mistakes.py large
another size        inproc --config small.yaml --ccl ring.yaml -q mistakes.py size
another type        inproc --config small.yaml --ccl ring.yaml -q mistakes.py dtype ; \
 inproc --config small.yaml --ccl ring.yaml -q --set algorithms.ring.strict_validation=true mistakes.py dtype
outside             inproc --config small.yaml --ccl ring.yaml -q mistakes.py outside
number              inproc --config small.yaml --ccl ring.yaml mistakes.py number
no room             inproc --config small.yaml api.py room

[deadlocks]
circle              inproc --config small.yaml --ccl burst.yaml --bytes 16K,24K
circle, local       zmq --config small.yaml --ccl burst.yaml --bytes 24K
circle, piggyback   inproc --config small.yaml --ccl burst.yaml --bytes 24K \
 --set 'defaults={credit_return_mode: piggyback, backpressure: poll}'
forgotten send      inproc --sips 3 --config small.yaml --ccl ring.yaml -q forgot.py
forgotten, local    unix --sips 3 --config small.yaml --ccl ring.yaml -q forgot.py
rank that stays out inproc --sips 4 --topology torus_2d --config small.yaml ends.py returns
stays out, local    zmq --sips 3 --config small.yaml ends.py returns
in one SIP          inproc --sips 1 --config small.yaml --ccl ring.yaml forgot.py

[exceptions]
in a script         inproc --sips 3 --config small.yaml ends.py raises
in a script, local  zmq --sips 3 --config small.yaml -q ends.py raises
exit                inproc --sips 2 --config small.yaml ends.py exits
in a kernel         inproc --config small.yaml --ccl ring.yaml mistakes.py divides
in a kernel, local  unix --config small.yaml --ccl ring.yaml -q mistakes.py divides
unknown word        inproc --config small.yaml --ccl ring.yaml -q mistakes.py word
generator           inproc --config small.yaml --ccl ring.yaml -q mistakes.py generator
wrong calls         inproc --config small.yaml -q api.py op ; inproc --config small.yaml -q api.py dtype ; \
 inproc --config small.yaml -q api.py rows ; inproc --config small.yaml -q api.py shape
wrong calls, more   inproc --config small.yaml -q api.py policy ; inproc --config small.yaml -q api.py split ; \
 inproc --config small.yaml -q api.py copy ; inproc --config small.yaml -q api.py twice ; \
 inproc --config small.yaml -q api.py backend

[wrong numbers]
built-in check      inproc --config small.yaml --ccl ring.yaml --set algorithms.ring.module=wrong.py --bytes 1K
local               zmq --config small.yaml --ccl ring.yaml --set algorithms.ring.module=wrong.py --bytes 1K
reference           inproc --config small.yaml --ccl ring.yaml --set algorithms.ring.module=wrong.py -q collectives.py

[faults]
kill                zmq --sips 4 --topology torus_2d -q --fault kill:2@1us
kill, restarted     zmq --sips 4 --topology torus_2d --max-restarts 1 --fault kill:2@1us
killed twice        unix --sips 3 --config small.yaml --max-restarts 2 --fault kill:1@500ns --fault kill:1@700ns#1
exit                unix --sips 3 --config small.yaml -q --fault exit:1@500ns:3
exit, restarted     zmq --sips 3 --config small.yaml --max-restarts 1 --fault exit:1@500ns:3
stop                zmq --sips 3 --config small.yaml -q --fault stop:1@500ns --progress-timeout 1
before joining      zmq --sips 3 --config small.yaml --max-restarts 1 --fault kill:0@join
broker, resumed     zmq --sips 3 --config small.yaml --bytes 1M --run-dir kept --fault broker@500ns ; \
 launch --resume kept
dies by itself      zmq --sips 3 --config small.yaml -q ends.py dies
too late            zmq --sips 2 --config small.yaml --fault kill:1@900us

[timeouts]
in a script         zmq --sips 2 --config small.yaml --timeout 2.5 ends.py sleeps
in one process      inproc --sips 2 --config small.yaml --timeout 2.5 ends.py sleeps
"""
"""A line a run: its name in 20 columns, then its commands, `` ; `` between them. ``zmq`` and ``unix`` are
``--engine local`` with that mail."""

PROGRAMS: dict[str, tuple[str, ...]] = {
    "launch": (),
    "inproc": ("--engine", "inproc"),
    "zmq": ("--engine", "local", "--mail", "zmq"),
    "unix": ("--engine", "local", "--mail", "unix"),
    "probe": (),
}

NAME_COLUMNS = 20
MATRIX = (("tcm", "hbm", "sram"), ("fast_path", "fabric", "piggyback"), ("sleep", "poll"))
MATRIX_COMMAND = "inproc --sips 4 --topology torus_2d --config small.yaml --bytes 48K"


@dataclass(frozen=True)
class Run:
    """One run of the table: commands that follow one another in one folder, each a program and its words."""

    name: str
    commands: tuple[str, ...]


def runs() -> list[Run]:
    """The table, and the queues' kinds and modes in all combinations."""
    found, group = [], ""
    for line in TABLE.replace("\\\n", "").splitlines():
        if line.startswith("["):
            group = line.strip("[]")
        elif line:
            name, commands = line[:NAME_COLUMNS].strip(), line[NAME_COLUMNS:]
            found.append(Run(f"{group}/{name}", tuple(" ".join(each.split()) for each in commands.split(" ; "))))
    for kind, credit, wait in itertools.product(*MATRIX):
        knobs = f"--set 'defaults={{buffer_kind: {kind}, credit_return_mode: {credit}, backpressure: {wait}}}'"
        found.append(Run(f"modes/{kind} {credit} {wait}", (f"{MATRIX_COMMAND} {knobs}",)))
    assert len({run.name for run in found}) == len(found), "two runs have one name"
    return found


# --- what is kept of a run ----------------------------------------------------------------------------------------

# fmt: off
RUN_KEYS = (
    "collective", "algorithm", "dtype", "op", "count", "bytes", "time_ns", "algbw_GBps", "busbw_GBps", "wrong",
    "checked",
)
RANK_KEYS = (
    "rank", "sim_end_ps", "events", "packets_sent", "packets_received", "bytes_sent", "tensor_sha256",
    "oplog_sha256", "restarts",
)
# fmt: on
ERROR_KEYS = ("kind", "rank", "cube", "pe", "direction", "deadlock", "signal", "exit_code")

VARYING: list[tuple[str, str]] = [
    (r"\b(digest|plan) [0-9a-f]{16,}", r"\1 ..."),
    (r"\b(ahbm-(?:launch|probe)) \d+\.\d+\.\d+", r"\1 ..."),
    (r"\bpid \d+", "pid ..."),
    (r"\bat [^ ]+ [pnum]?s( of simulated time)?, granted to [^ ]+ [pnum]?s\b", r"at ...\1, granted to ..."),
    (r"\bhas made no progress for [\d.]+ s at [^ ]+ [pnum]?s\b", "has made no progress for ... s at ..."),
    (r"; granted to [^ ]+ [pnum]?s\b", "; granted to ..."),
    (r"(?m)^ahbm-launch: stalled: .*\n(?:  .*\n)*", ""),
    (r"\babout [\d.]+ s of wall time(?: beside .* by itself\))?, [\d.]+ MiB\b", "about ... s of wall time, ... MiB"),
    (r"\b(algorithms/\w+\.py):\d+", r"\1:..."),
    (r'File "<tree>/[^"]+", line \d+, in \w+', 'File "<tree>/...", line ..., in ...'),
    (r"\b\d+ grants\b", "... grants"),
    (r"\b[\d.]+ s CPU, [\d.]+ MiB", "... s CPU, ... MiB"),
    (r"\bhas made no progress for [\d.]+ s\b", "has made no progress for ... s"),
]
"""Patterns in texts that differ between equal runs, and what takes their place: a run that has hung is reported as
stalled before, or not, as the host is fast. Lines and functions of the program's own files are no behaviour either."""


def normalised(text: str, places: dict[str, str]) -> list[str]:
    """The lines of a text without what differs between equal runs.

    Lines of ranks come in the order in which their processes ran; here rank by rank, before the launcher's own.
    ``places``: folders, and what to call them.
    """
    return sorted(_normalised(text, places).splitlines(), key=_rank_of)


def _normalised(text: str, places: dict[str, str]) -> str:
    for place, name in places.items():
        text = text.replace(place, name)
    for pattern, instead in VARYING:
        text = re.sub(pattern, instead, text)
    return text


def normalised_facts(facts: Json, places: dict[str, str]) -> Json:
    """The facts of an error without what differs between equal runs. A line of the program's own files is 0."""
    if isinstance(facts, str):
        return _normalised(facts, places)
    if isinstance(facts, list):
        return [normalised_facts(each, places) for each in facts]
    if not isinstance(facts, dict):
        return facts
    told = {key: normalised_facts(each, places) for key, each in facts.items()}
    is_own = str(told.get("file", "")).startswith("<tree>")
    return told | {"line": 0} if is_own else told


def _rank_of(line: str) -> int:
    found = re.match(r"\[rank (\d+)\] ", line)
    return int(found[1]) if found else sys.maxsize


def kept(document: Json, places: dict[str, str]) -> Json:
    """What is recorded of a result file, but for the error's message. ``places``: as of :func:`normalised`."""
    if "runs" not in document:
        return {key: value for key, value in document.items() if key != "version"}
    error = document["error"] or {}
    stops_anywhere = document["status"] != "ok" and document["engine"] != "inproc"
    if stops_anywhere and error["kind"] not in ("IpcqDeadlock", "wrong_numbers"):
        done: dict[str, Json] = {"runs": "not recorded", "ranks": "not recorded"}
    else:
        done = {"runs": [{key: each[key] for key in RUN_KEYS} for each in document["runs"]]}
        done["ranks"] = [{key: rank[key] for key in RANK_KEYS} for rank in document["ranks"]]
    return {
        "status": document["status"],
        "error": normalised_facts({key: error[key] for key in ERROR_KEYS if key in error}, places) or None,
        **done,
    }


# --- running ------------------------------------------------------------------------------------------------------


class Failed(Exception):
    """A run that could not be carried out, or cannot be compared."""


class Tree:
    """A checkout whose code is run."""

    def __init__(self, path: Path) -> None:
        self.path = path.resolve()
        entry = tomllib.loads((self.path / "pyproject.toml").read_text())["project"]["scripts"]["ahbm-probe"]
        module, _, function = entry.partition(":")
        probe = f"import sys; from {module} import {function} as main; sys.exit(main())"
        self._probe = (sys.executable, "-c", probe)
        self._launch = (sys.executable, "-m", "launcher")

    def command(self, program: str) -> tuple[str, ...]:
        """How a program of the tree is started."""
        return self._probe if program == "probe" else self._launch

    def environment(self, folder: Path) -> dict[str, str]:
        """For a run in this folder: this tree's code, nothing of the caller's that changes a run."""
        own = {name: value for name, value in os.environ.items() if not name.startswith(("AHBM_", "PYTHON"))}
        paths = {"PYTHONPATH": str(self.path), "TMPDIR": str(folder / "tmp"), "AHBM_SSH": str(folder / "ssh")}
        # The variant without costs: so a change of a default cost does not change the record.
        paths["AHBM_VARIANT"] = "adr"
        return {**own, **paths, "COLUMNS": "100", "LC_ALL": "C.UTF-8"}

    def check(self) -> None:
        """Whether it is this tree's code that would run.

        Raises:
            Failed: when Python finds another, or cannot import it.
        """
        with tempfile.TemporaryDirectory() as folder:
            asked = [sys.executable, "-c", "import launcher; print(launcher.__file__)"]
            env = self.environment(Path(folder)) | {"TMPDIR": folder}
            done = subprocess.run(asked, cwd=folder, env=env, capture_output=True, text=True)
        if done.returncode or not done.stdout.startswith(f"{self.path}{os.sep}"):
            raise Failed(f"{self.path} is not what would run: {done.stdout.strip()}{done.stderr.strip()}")


def observe(run: Run, tree: Tree) -> Observed:
    """Carry out a run in a folder of its own.

    Raises:
        Failed: when it does not end, or its result file is missing or no JSON.
    """
    # Not the system's own choice, whose name may be too long for sockets.
    with tempfile.TemporaryDirectory(prefix="same-", dir="/tmp") as name:
        folder = Path(name)
        _fill(folder)
        steps = [_step(command, number, folder, tree) for number, command in enumerate(run.commands)]
        outputs = {name: (folder / name).read_text() for name in OUTPUTS if (folder / name).is_file()}
        left = sorted(str(path.relative_to(folder)) for path in (folder / "tmp").rglob("*"))
    return {
        "commands": list(run.commands),
        "results": {
            "steps": [results for results, _ in steps],
            "outputs": {name: text.splitlines() for name, text in outputs.items()},
            "left": left,
        },
        "messages": [messages for _, messages in steps],
    }


def _fill(folder: Path) -> None:
    for name, text in FILES.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text.removeprefix("\n"))
    (folder / "ssh").chmod(0o700)
    (folder / "tmp").mkdir()


def _step(command: str, number: int, folder: Path, tree: Tree) -> tuple[Json, Json]:
    """One command: its results and its messages."""
    program, *words = shlex.split(command)
    file = folder / f"result-{number}.json"
    argv = [*tree.command(program), *PROGRAMS[program], "--json", file.name, *words]
    code, out, err = _run(argv, folder, tree.environment(folder))
    document = json.loads(file.read_text()) if file.is_file() else None
    places = {str(folder): "<folder>", str(tree.path): "<tree>"}
    results = {"exit_code": code, "json": kept(document, places) if document else None}
    messages = {"stdout": normalised(out, places), "stderr": normalised(err, places)}
    error = (document or {}).get("error")
    if error is not None:
        messages["error"] = normalised(error["message"], places)
    return results, messages


def _run(argv: list[str], folder: Path, env: dict[str, str]) -> tuple[int, str, str]:
    pipes: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(argv, cwd=folder, env=env, text=True, start_new_session=True, **pipes) as process:
        try:
            out, err = process.communicate(timeout=STEP_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            raise Failed(f"{shlex.join(argv[3:])} has not ended after {STEP_S:g} s") from None
    return process.returncode, out, err


# --- comparing ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Verdict:
    """What came of one run, as unified diffs; ``failure``: why there is nothing to compare."""

    name: str
    results: str = ""
    messages: str = ""
    failure: str = ""


def compare(name: str, recorded: Observed, seen: Observed) -> Verdict:
    """What differs between the record of a run and the run."""
    if recorded["commands"] != seen["commands"]:
        return Verdict(name, failure="its commands are not those that were recorded; --record writes them anew")
    pairs = [(recorded[part], seen[part]) for part in ("results", "messages")]
    return Verdict(name, *(_diff(name, *(json.dumps(each, indent=1) for each in pair)) for pair in pairs))


def _diff(name: str, recorded: str, seen: str) -> str:
    lines = difflib.unified_diff(recorded.splitlines(), seen.splitlines(), f"recorded {name}", name, lineterm="")
    return "\n".join(lines)


def show(verdict: Verdict) -> None:
    """Say what differs in a run, if anything."""
    if verdict.failure:
        print(f"{verdict.name}: failed: {verdict.failure}")
    for part, diff in (("results", verdict.results), ("messages", verdict.messages)):
        if diff:
            print(f"{verdict.name}: {part} differ\n{diff}")


def summary(verdicts: list[Verdict]) -> str:
    """The last line."""
    parts = ("results", "messages")
    counts = {part: sum(bool(getattr(each, part)) for each in verdicts) for part in (*parts, "failure")}
    words = [f"{part} of {counts[part]} differ" if counts[part] else f"{part} equal" for part in parts]
    failed = f", {counts['failure']} failed" if counts["failure"] else ""
    return f"{len(verdicts)} runs: {', '.join(words)}{failed}"


def write_record(observed: dict[str, Observed]) -> None:
    """The record, a run after the other in the order of the table."""
    text = json.dumps(observed, indent=1) + "\n"
    beside = RECORD.with_name(f".{RECORD.name}.{os.getpid()}")
    beside.write_text(text)
    shutil.move(beside, RECORD)


def in_table_order(table: list[Run], tree: Tree, jobs: int, then: Callable[[Run, Observed | str], None]) -> None:
    """Carry out runs, some at a time, and hand each on in the order of the table: what it did, or why it failed."""

    def tried(run: Run) -> Observed | str:
        try:
            return observe(run, tree)
        except (Failed, OSError, ValueError, KeyError) as error:
            return f"{type(error).__name__}: {error}"

    with ThreadPoolExecutor(jobs) as pool:
        for run, seen in zip(table, pool.map(tried, table), strict=True):
            then(run, seen)


def check(table: list[Run], tree: Tree, jobs: int, ignore_messages: bool) -> int:
    """Compare runs with the record; the exit status."""
    record: dict[str, Observed] = json.loads(RECORD.read_text())
    verdicts: list[Verdict] = []

    def judge(run: Run, seen: Observed | str) -> None:
        if isinstance(seen, str):
            verdict = Verdict(run.name, failure=seen)
        elif run.name not in record:
            verdict = Verdict(run.name, failure="not recorded; --record writes it")
        else:
            verdict = compare(run.name, record[run.name], seen)
        show(verdict)
        verdicts.append(verdict)

    in_table_order(table, tree, jobs, judge)
    print(summary(verdicts))
    return int(any(each.failure or each.results or (each.messages and not ignore_messages) for each in verdicts))


def record_anew(table: list[Run], tree: Tree, jobs: int) -> int:
    """Write the record of these runs, and leave that of others as it is; the exit status."""
    before: dict[str, Observed] = json.loads(RECORD.read_text()) if RECORD.exists() else {}
    observed: dict[str, Observed] = {}
    failures: list[str] = []

    def keep(run: Run, seen: Observed | str) -> None:
        if isinstance(seen, str):
            failures.append(f"{run.name}: failed: {seen}")
        else:
            observed[run.name] = seen

    in_table_order(table, tree, jobs, keep)
    if failures:
        print("\n".join([*failures, f"{len(failures)} of {len(table)} runs failed; nothing is recorded"]))
        return 1
    # A run that is in the table no longer is recorded no longer.
    known = before | observed
    write_record({run.name: known[run.name] for run in runs() if run.name in known})
    print(f"{len(observed)} runs recorded in {RECORD}")
    return 0


def main() -> int:
    """Compare, or record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--record", action="store_true", help="write the record anew")
    parser.add_argument("--only", default="", metavar="PATTERN", help="runs in whose name this regular expression is")
    parser.add_argument("--tree", type=Path, default=HERE.parent.parent, metavar="DIR", help="whose code (this one's)")
    parser.add_argument("--jobs", type=int, default=2, metavar="N", help="runs at a time (2)")
    parser.add_argument("--ignore-messages", action="store_true", help="show differences of messages, and pass")
    parser.add_argument("--list", action="store_true", help="say the names of the runs, and run nothing")
    chosen = parser.parse_args()
    table = [run for run in runs() if re.search(chosen.only, run.name)]
    if chosen.list or not table:
        print("\n".join(run.name for run in table) if table else f"no run is named like {chosen.only!r}")
        return int(not table)
    began_s = time.monotonic()
    try:
        tree = Tree(chosen.tree)
        tree.check()
        if chosen.record:
            return record_anew(table, tree, chosen.jobs)
        return check(table, tree, chosen.jobs, chosen.ignore_messages)
    except (Failed, OSError) as error:
        print(f"same_results: {error}", file=sys.stderr)
        return 1
    finally:
        print(f"{time.monotonic() - began_s:.0f} s", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
