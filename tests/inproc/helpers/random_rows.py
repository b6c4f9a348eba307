"""Rows of tables, drawn: a system, and rows of its collectives, kernels and messages. A seed is a system and four rows.

Not a test. A row is measured alone, and behind the three others; all that its result entry says must be equal, and so
must the times of each rank, counted from the row's start.
"""

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from runs import Run, run, script_file

from launcher.bench.base import Case
from launcher.bench.benches.ccl import OPERATIONS, CclCase
from launcher.bench.benches.ethernet import ROUND_TRIP, TESTS

SYSTEMS = (
    (1, "ring_1d"), (2, "ring_1d"), (3, "ring_1d"), (4, "ring_1d"),
    (4, "torus_2d"), (4, "mesh_2d_no_wrap"), (4, "mesh_2d_no_wrap"),
)  # fmt: skip
GRIDS = ("torus_2d", "mesh_2d_no_wrap")
ANY = ("ring", "direct", "auto")
ALGORITHMS = {
    "all_reduce": (*ANY, "tree", "bidirectional_ring", "one_shot", "double_tree", "line"),
    "all_gather": (*ANY, "bidirectional_ring"),
    "reduce_scatter": (*ANY, "bidirectional_ring"),
    "all_to_all": ANY,
    "broadcast": (*ANY, "tree"),
    "reduce": (*ANY, "tree"),
    "gather": ANY,
    "scatter": ANY,
}
RINGS = tuple(TESTS)
PINGS = (ROUND_TRIP, "test_erisc_latency_uni_dir", "test_erisc_write_worker_latency_uni_dir")
LINKS = tuple(f"test_erisc{worker}_bw_{ways}_dir" for worker in ("", "_write_worker") for ways in ("uni", "bi"))
OF_GRIDS = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce")
SCRIPT = '''
import json
import sys

from sipsim.collectives.call import Call
from sipsim.collectives.semantics import COLLECTIVES
from sipsim.chips.ahbm.host.layout import DPPolicy

TILE = 256

def streams(source, result, tiles, tl):
    """Its last store is under way when it ends."""
    for at in range(tiles):
        here = at * TILE * 2
        tl.store_async(int(result) + here, tl.load(int(source) + here, TILE, "f16") + 1)

def kernels(torch, rank, size, row):
    """Loads and stores beside each other, at addresses of several pages."""
    one = DPPolicy("row_wise", "row_wise", 1, 1)
    source, result = (torch.zeros((row["tiles"] * TILE,), dtype="f16", dp=one) for _ in range(2))
    torch.launch(streams, source, result, row["tiles"], pes=row["pes"])

def messages(torch, rank, size, row):
    dist = torch.distributed
    one = DPPolicy("row_wise", "row_wise", 1, 1)
    mine, other = (torch.zeros((row["n_elem"],), dtype="f16", dp=one) for _ in range(2))
    if size > 1:
        sends = dist.P2POp(dist.isend, mine, (rank + 1) % size), dist.P2POp(dist.irecv, other, (rank - 1) % size)
        for work in dist.batch_isend_irecv(sends):
            work.wait()

def wired(torch, rank, size, row):
    cubes = row["cubes"]
    tensor = torch.zeros((cubes, row["n_elem"]), dtype="f16", dp=DPPolicy(num_cubes=cubes))
    for _ in range(row["calls"]):
        torch.distributed.run_collective("intercube", Call(tensor, tensor, "sum"), False)

def collective(torch, rank, size, row):
    kind, dist = COLLECTIVES.get(row["collective"]), torch.distributed
    dp = DPPolicy("row_wise", "row_wise", *row["layout"])
    sizes = kind.elements(row["n_elem"], size)
    works = []
    for _ in range(row["tensors"]):
        source, result = (torch.zeros((elements,), dtype=row["dtype"], dp=dp) for elements in sizes)
        call = Call(source, source if kind.in_place else result, "sum" if kind.ops else "none",
                    (0,) if kind.has_root else ())
        for _ in range(row["calls"]):
            works.append(dist.run_collective(row["collective"], call, True, None, row["algorithm"]))
    for work in works:
        work.wait()

def worker(rank, world_size, torch):
    torch.distributed.init_process_group()
    for number, row in enumerate(json.loads(sys.argv[1])):
        with torch.ahbm.row(f"row {row['name']}"):
            for step in row["steps"]:
                globals()[step["kind"]](torch, rank, world_size, step)
'''


class Drawn(NamedTuple):
    """``flags`` of the system; ``rows`` of a script, or for each the flags of rows of the built-in job."""

    flags: tuple[str, ...]
    rows: list[dict[str, Any]]


def drawn(seed: int) -> Drawn:
    """A system and its four rows; the last one is measured."""
    draw = random.Random(f"rows {seed}")
    sips, topology = draw.choice(SYSTEMS)
    width, pes = draw.choice(((1, 8), (1, 2), (2, 2), (2, 4)))
    memory = draw.choice(("", "", "hbm4_8000", "closed", "fixed", "shared"))
    settings = {
        "sip.cube_mesh.w": width,
        "sip.cube_mesh.h": draw.choice((1, 1, 2)),
        "cube.pes": pes,
        "defaults.n_slots": draw.choice((1, 2, 3, 8)),
        "defaults.slot_size": draw.choice((512, 1024, 4096)),
        "defaults.buffer_kind": draw.choice(("tcm", "hbm", "sram")),
        "defaults.credit_return_mode": draw.choice(("fast_path", "auto", "fabric", "piggyback")),
        "defaults.backpressure": draw.choice(("sleep", "sleep", "poll")),
        "defaults.latch": draw.choice(("copy", "in_place", "null")),
        "defaults.virtual_channels": draw.choice(("true", "true", "false")),
        "pe_mmu.tlb_entries": draw.choice((1, 2, 64)),
        "pe_mmu.page_KiB": draw.choice((4, 64, 2048)),
        "pe_mmu.virtual_rings": draw.choice(("true", "false")),
        "router.buffer_packets": draw.choice(("null", "null", "null", 2)),
        "launch.start_margin_ns": draw.choice(("null", 100)),
        "launch.max_start_skew_ns": draw.choice((0, 0, 300)),
    }
    if settings["router.buffer_packets"] == 2:
        settings["io_port.buffer_packets"] = draw.choice(("null", 4))
    of_memory = {
        "hbm4_8000": {"hbm.params.preset": "hbm4_8000"},
        "closed": {"hbm.params.page_policy": "closed"},
        "fixed": {"hbm.kind": "fixed_latency"},
        "shared": {"tcm.params.ports": "shared"},
    }
    settings |= of_memory.get(memory, {})
    link = draw.choice(("ucie", "ucie", "ethernet_100g", "ethernet_400g"))
    flags = ["--sips", sips, "--topology", topology, "--link", link]
    flags += [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    cubes = width * int(settings["sip.cube_mesh.h"])
    steps = [_steps(draw, sips, topology, cubes, pes) for _ in range(4)]
    wired = [step for some in steps for step in some if step["kind"] == "wired"]
    if settings["defaults.latch"] == "in_place" and wired:
        # Its kernels would hold all slots, and block their senders for ever.
        flags += ["--set", "defaults.latch=copy"]
    return Drawn(tuple(map(str, flags)), [{"name": at, "steps": each} for at, each in enumerate(steps)])


def _steps(draw: random.Random, sips: int, topology: str, cubes: int, pes: int) -> list[dict[str, Any]]:
    """What a row does: one to three things, the last of them a collective."""
    kinds = [draw.choice(("kernels", "messages", "wired", "collective")) for _ in range(draw.choice((0, 0, 1, 2)))]
    steps: list[dict[str, Any]] = []
    for kind in (*kinds, draw.choice(("collective", "collective", "collective", "wired"))):
        step: dict[str, Any] = {"kind": kind, "n_elem": draw.choice((64, 512, 3000, 20000)), "calls": 1}
        if kind == "kernels":
            step |= {"tiles": draw.choice((3, 20)), "pes": draw.sample(range(pes), draw.randint(1, pes))}
        elif kind == "wired":
            step |= {"cubes": cubes, "calls": draw.choice((1, 2)), "n_elem": draw.choice((16, 200, 3000))}
        elif kind == "collective":
            name = draw.choice((*ALGORITHMS, "all_reduce", "all_reduce"))
            names = ALGORITHMS[name]
            if topology in GRIDS and name in OF_GRIDS:
                names = (*names, "multidim_ring", "multidim_ring")
            if sips in (2, 4) and name == "all_reduce":
                names = (*names, "halving_doubling", "recursive_doubling")
            layout = draw.choice(((1, 1), (1, pes), (cubes, pes)))
            n_elem = draw.choice((1, 8, 50, 300, 1200)) * layout[0] * layout[1]
            step |= {"collective": name, "algorithm": draw.choice(names), "layout": layout, "n_elem": n_elem}
            step |= {"dtype": draw.choice(("f16", "f32", "i32")), "calls": draw.choice((1, 1, 2))}
            step |= {"tensors": draw.choice((1, 1, 2))}
        steps.append(step)
    return steps


class DrawnBench(NamedTuple):
    """A bench, a case of four sizes, of which the last is measured, and a chip."""

    name: str
    case: Case
    chip: str


def drawn_bench(seed: int) -> DrawnBench:
    """Of chips of tiles."""
    draw = random.Random(f"bench {seed}")
    sizes = tuple(draw.sample((16, 64, 128, 512, 1024, 2048, 4096), 4))
    name = draw.choice(("ring-latency", "eth-ping", "eth-bandwidth", "ccl"))
    cases: dict[str, Callable[[], Case]] = {
        "ring-latency": lambda: Case(draw.choice(RINGS), draw.choice((1, 2)), draw.choice((2, 3, 4)), sizes),
        "eth-ping": lambda: Case(draw.choice(PINGS), 1, 1, sizes),
        "eth-bandwidth": lambda: Case(draw.choice(LINKS), draw.choice((2, 16)), 1, sizes),
        "ccl": lambda: CclCase(draw.choice(OPERATIONS), sizes=tuple(16384 * n for n in draw.sample(range(1, 6), 4))),
    }
    return DrawnBench(name, cases[name](), draw.choice(("wormhole", "blackhole")))


def measured(folder: Path, flags: tuple[str, ...], rows: list[dict[str, Any]], *more: str) -> list[Any]:
    """All that the last of these rows has measured."""
    done = run(*flags, *more, script_file(folder, SCRIPT), json.dumps(rows))
    return last_row(done, f"row {rows[-1]['name']}")


def last_row(done: Run, name: str | None = None) -> list[Any]:
    """Of the last row of a run, or of that name: its entries, and the times of each rank from the row's start."""
    assert done.outcome.error is None, done.outcome.error.message
    entries = [each for each in done.document["runs"] if each["row"] == name]
    entries = entries if name else entries[-1:]
    ranks = sorted(done.outcome.ranks.items())
    records = {rank: [each for each in told.runs if each.row == (name or "")][-len(entries) :] for rank, told in ranks}
    start_ps = min(span[0] for each in records.values() for record in each for span in record.spans_ps)
    times = {
        rank: [[tuple(ps - start_ps for ps in span) for span in (*each.spans_ps, *each.kernels_ps) if span]
               for each in some]
        for rank, some in records.items()
    }  # fmt: skip
    return [entries, times]
