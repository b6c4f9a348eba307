"""Every collective with every algorithm on every topology, simulated, against NumPy: a printed grid.

    python scripts/ccl_grid.py --quick        some cases of each cell, in some minutes
    python scripts/ccl_grid.py                all types and operators of each cell
    python scripts/ccl_grid.py --sips 3,4 --topologies torus_2d --cases 20

A cell is a collective with an algorithm (a row) on a topology with a number of SIPs (a column): its cases, and how many
of them were wrong. Each case draws its size, which is a multiple of nothing, its type, operator, root, layout, and
group: all ranks or some of them in any order. A case has either small whole numbers, and its results are compared with
the collective's definition in NumPy; or, in floating types, numbers of many sizes with -0.0, infinities and NaN, and
they are compared bit for bit with the schedule carried out in NumPy, as are all others (``--verify-data``).

One run of a small system has all cases of a column. Exit code 1 if anything is wrong. A ``-``: the algorithm does not
run the collective there. Collectives that are wired before the run (``intercube``) are not among them.
"""

import argparse
import importlib
import json
import math
import pkgutil
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

if __name__ == "__main__":
    sys.path.append(str(Path(__file__).resolve().parents[1]))

import sipsim.collectives.algorithms
from sipsim.chips.ahbm.host.layout import DPPolicy
from sipsim.collectives.call import Call
from sipsim.collectives.group import Group
from sipsim.collectives.reduction import NO_OP
from sipsim.collectives.semantics import COLLECTIVES, Collective, Task
from sipsim.core.dtypes import DTYPES

Array = Any
TOPOLOGIES = ("ring_1d", "line", "torus_2d", "mesh_2d_no_wrap", "custom")
SIPS = range(2, 10)
SIZES = (1, 2, 3, 5, 7, 12, 31, 64, 97, 131, 256, 401)
TYPES = ("f32", "f16", "bf16", "i32", "i8")
QUICK_CASES = 3
PES = 4
SMALL = ("sip.cube_mesh={w: 1, h: 1}", f"cube.pes={PES}", "defaults.worker_bytes=128", "defaults.group_KiB=64")
SLOTS = ("slot_size=128", "n_slots=3")
SPECIAL = (-0.0, 0.0, math.inf, -math.inf, math.nan)


class Case(NamedTuple):
    """One call. ``sips``: the group; ``pes``: that share each tensor; ``is_whole``: small whole numbers."""

    collective: str
    algorithm: str
    n_elem: int
    dtype: str
    op: str
    sips: tuple[int, ...]
    root: int
    pes: int
    is_whole: bool
    seed: int


def schedules() -> dict[str, Any]:
    """The algorithms that run in any group, by name."""
    names = (found.name for found in pkgutil.iter_modules(sipsim.collectives.algorithms.__path__))
    modules = {name: importlib.import_module(f"sipsim.collectives.algorithms.{name}") for name in names}
    return {name: module for name, module in modules.items() if hasattr(module, "schedule")}


def cases_of(collective: Collective, algorithm: str, system: Any, count: int | None) -> Iterator[Case]:
    """The cases of a cell: so many, or all types and operators."""
    draw = random.Random(f"{collective.name} {algorithm} {system.topology} {system.n_sips}")
    ops = collective.ops or (NO_OP,)
    pairs = [(dtype, op) for dtype in TYPES for op in ops if op != "avg" or DTYPES[dtype].is_float]
    for number, (dtype, op) in enumerate(pairs if count is None else draw.choices(pairs, k=count)):
        sips = range(system.n_sips)
        if number % 3 == 2:
            sips = draw.sample(sips, draw.randint(1, system.n_sips))
        n_elem = draw.choice(SIZES)
        pes = max(pes for pes in (1, 2, 4) if pes == 1 or (n_elem % pes == 0 and draw.random() < 0.7))
        is_whole = not DTYPES[dtype].is_float or bool(draw.getrandbits(1))
        root, seed = draw.choice(sips), draw.getrandbits(30)
        yield Case(collective.name, algorithm, n_elem, dtype, op, tuple(sips), root, pes, is_whole, seed)


def sources(case: Case, count: int) -> list[Array]:
    """What each rank of the group has before."""
    rng, dtype = np.random.default_rng(case.seed), DTYPES[case.dtype].numpy
    shape = (len(case.sips), count)
    if case.is_whole:
        # Every sum is exact in every type, and so is every product, with twos in one rank of three.
        values = rng.integers(-4, 5, shape)
        if case.op == "prod":
            values = np.where(values < 0, -1, 1) * np.where(np.arange(shape[0])[:, None] % 3 == 0, 2, 1)
        return [*values.astype(dtype)]
    found = rng.standard_normal(shape) * 2.0 ** rng.integers(-6, 7, shape)
    special = rng.random(shape) < 0.1
    found[special] = rng.choice(SPECIAL, int(special.sum()))
    return [*found.astype(np.float32).astype(dtype)]


def run_case(torch: Any, rank: int, case: Case) -> int:
    """Make a call on this rank; how many elements are not those of the definition."""
    dist, collective = torch.distributed, COLLECTIVES.get(case.collective)
    size = len(case.sips)
    group = dist.new_group(case.sips)
    wrong = 0
    if rank in case.sips:
        own, root = case.sips.index(rank), case.sips.index(case.root)
        of_source, of_result = collective.elements(case.n_elem, size)
        every = sources(case, of_source)
        layout = DPPolicy("row_wise", "row_wise", 1, case.pes)
        has_source = not (case.collective == "scatter" and own != root)
        has_result = not (case.collective == "gather" and own != root)
        source = torch.zeros((of_source,), dtype=case.dtype, dp=layout) if has_source else None
        if source is not None:
            source.copy_(torch.from_numpy(every[own]))
        result = source
        if not collective.in_place:
            result = torch.zeros((of_result,), dtype=case.dtype, dp=layout) if has_result else None
        values = (case.root,) if collective.has_root else ()
        dist.run_collective(case.collective, Call(source, result, case.op, values), False, group, case.algorithm)
        wanted = collective.result_of(every, size, root, case.op, own) if case.is_whole else None
        if wanted is not None:
            wrong = int((result.numpy() != wanted).sum())
    dist.destroy_process_group(group)
    return wrong


def worker(rank: int, world_size: int, torch: Any) -> None:
    """Run all cases of a column; the counts of wrong elements go into a file of this rank."""
    folder, count, only = sys.argv[1:4]
    torch.distributed.init_process_group(backend="ahbm")
    cases = column(torch._sip.plan.system, int(count) or None, only)
    counts = [run_case(torch, rank, case) for case in cases]
    Path(folder, f"{rank}.json").write_text(json.dumps(counts))


def column(system: Any, count: int | None, only: str) -> list[Case]:
    """All cases that run on a system. ``only``: of this collective; empty for all."""
    found: list[Case] = []
    for algorithm, module in schedules().items():
        for name in module.COLLECTIVES:
            if only in ("", name):
                cases = cases_of(COLLECTIVES.get(name), algorithm, system, count)
                found += [case for case in cases if not why_not(module, case, system)]
    return found


def why_not(module: Any, case: Case, system: Any) -> str:
    """Why an algorithm cannot run a case; empty if it can."""
    collective = COLLECTIVES.get(case.collective)
    group, root = Group(case.sips, system), case.sips.index(case.root)
    task = Task(collective, group, case.n_elem, DTYPES[case.dtype].itemsize, root, collective.in_place)
    return str(module.suits(task)) if hasattr(module, "suits") else ""


def links_of(sips: int) -> str:
    """A tree, with a link from its last SIP to the first, as an edge list of ``custom``."""
    parents = [((sip - 1) // 2, "ES"[(sip - 1) % 2], sip, "W") for sip in range(1, sips)]
    edges = [*parents, (sips - 1, "N", 0, "N")] if sips > 3 else parents
    return ", ".join(f"{{a: {a}, a_port: {a_port}, b: {b}, b_port: {b_port}}}" for a, a_port, b, b_port in edges)


def flags(topology: str, sips: int) -> dict[str, Any]:
    """Keywords of a run on a topology; grids are as square as they can be."""
    height = max(each for each in range(1, math.isqrt(sips) + 1) if sips % each == 0)
    settings = [*SMALL, *(f"algorithms.{name}.{slots}" for name in schedules() for slots in SLOTS)]
    if topology == "custom":
        return {"topology": topology, "set": [*settings, f"system.sips.custom_links=[{links_of(sips)}]"]}
    if topology in ("torus_2d", "mesh_2d_no_wrap"):
        return {"topology": topology, "shape": f"{sips // height}x{height}", "set": settings}
    if topology == "line":
        return {"topology": "mesh_2d_no_wrap", "shape": f"{sips}x1", "set": settings}
    return {"topology": topology, "set": settings}


class Cell(NamedTuple):
    """``wrong``: cases with a wrong element."""

    cases: int
    wrong: int


def run_column(topology: str, sips: int, count: int, only: str, variant: str) -> dict[tuple[str, str], Cell]:
    """Run all cases of a column, and count them by collective and algorithm.

    Raises:
        RuntimeError: when the run failed otherwise than by wrong numbers.
    """
    from launcher.api import run

    with tempfile.TemporaryDirectory() as folder:
        outcome = run(
            __file__, script_args=[folder, count, only], sips=sips, engine="inproc", variant=variant, algorithm="ring",
            **flags(topology, sips),
        )  # fmt: skip
        counts = [json.loads(path.read_text()) for path in sorted(Path(folder).glob("*.json"))]
    if outcome.exit_code not in (0, 1) or len(counts) != sips:
        raise RuntimeError(f"{topology}, {sips} SIPs: {outcome.document['error']}\n{outcome.output}")
    rows = outcome.document["runs"]
    if len(rows) != len(counts[0]) or not all(row["checked"] for row in rows):
        raise RuntimeError(f"{topology}, {sips} SIPs: {len(rows)} results of {len(counts[0])} calls, or unchecked ones")
    cases, wrong = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
    for row, found in zip(rows, zip(*counts, strict=True), strict=True):
        key = row["collective"], row["algorithm"]
        cases[key] += 1
        wrong[key] += bool(row["wrong"] or any(found))
    return {key: Cell(cases[key], wrong[key]) for key in cases}


def main() -> int:
    """Print the grid; 1 if anything is wrong."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_CASES} cases of a cell")
    parser.add_argument("--cases", type=int, default=0, help="of a cell; all types and operators if not given")
    parser.add_argument("--sips", type=lambda text: [*map(int, text.split(","))], default=SIPS)
    parser.add_argument("--topologies", type=lambda text: text.split(","), default=TOPOLOGIES)
    parser.add_argument("--collective", default="", help="only this one")
    parser.add_argument("--variant", default="adr", help="costs of the machine: ideal, adr or default")
    parser.add_argument("--json", metavar="FILE", type=Path)
    given = parser.parse_args()
    count, started_s = given.cases or (QUICK_CASES if given.quick else 0), time.monotonic()
    variant = None if given.variant == "default" else given.variant
    grid: dict[str, dict[tuple[str, str], Cell]] = {}
    for topology in given.topologies:
        for sips in given.sips:
            grid[f"{topology} {sips}"] = run_column(topology, sips, count, given.collective, variant)
    cells = [cell for found in grid.values() for cell in found.values()]
    print_grid(grid, given.topologies, given.sips)
    wrong = sum(cell.wrong for cell in cells)
    took = f"{time.monotonic() - started_s:.0f} s"
    print(f"{sum(cell.cases for cell in cells)} cases in {len(cells)} cells, {wrong} wrong; {took}")
    if given.json:
        rows = [
            {"collective": name, "algorithm": algorithm, "column": column, **cell._asdict()}
            for column, found in grid.items()
            for (name, algorithm), cell in found.items()
        ]
        given.json.write_text(json.dumps({"rows": rows}, indent=1))
    return 1 if wrong else 0


def print_grid(grid: dict[str, dict[tuple[str, str], Cell]], topologies: list[str], sips: list[int]) -> None:
    """A row for each collective and algorithm, a column for each topology and number of SIPs."""
    width, keys = 5 * len(sips) + 2, sorted({key for found in grid.values() for key in found})
    head = " " * 34 + "".join(f"{topology:<{width}}" for topology in topologies)
    counts = ("".join(f"{each:<5}" for each in sips) + "  ") * len(topologies)
    print(head.rstrip())
    print(f"{'collective':<15}{'algorithm':<19}{counts}".rstrip())
    for name, algorithm in keys:
        line = f"{name:<15}{algorithm:<19}"
        for topology in topologies:
            found = (grid[f"{topology} {each}"].get((name, algorithm)) for each in sips)
            line += "".join(f"{_text(cell):<5}" for cell in found) + "  "
        print(line.rstrip())


def _text(cell: Cell | None) -> str:
    if cell is None:
        return "-"
    return f"{cell.cases}!{cell.wrong}" if cell.wrong else str(cell.cases)


if __name__ == "__main__":
    sys.exit(main())
