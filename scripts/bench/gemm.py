"""Matrix products on PEs against what bounds them: stall-free cycles of the array, and memory.

Each row is a run of ``scripts/benches/gemm.py`` on the PEs of a cube. ``bound`` is the part of the peak that the
product can reach at most: by the array, whose cycles are SCALE-Sim's, by memory, ``bandwidth x intensity`` with each
element moved once, or by the read port of the TCM. ``reached`` is the part of the bound. ``loaded``: bytes that tiles
load, against those of A and B. Where more than 10 % of the bound is missing, the row says where the kernels' time
went, by the run's own output: cycles, fill and drain, what the array waited for
(``sipsim.chips.ahbm.gemm.pipeline``), page walks, issue.
"""

import argparse
from typing import Any

from benches.gemm import bound

from launcher.api import run
from sipsim.chips.ahbm.gemm.tiling import Product
from sipsim.chips.config import load
from sipsim.config.load import Override
from sipsim.core.units import PS_PER_US, ns_to_ps

from .kit import SCRIPTS, Flag, Table

SHAPES = (
    (256, 2048, 256, "f16", "os"),
    (512, 1024, 512, "f16", "os"),
    (256, 2048, 256, "bf16", "os"),
    (256, 2048, 256, "i8", "os"),
    (256, 2048, 256, "f32", "os"),
    (256, 256, 256, "f16", "os"),
    (128, 4096, 128, "f16", "os"),
    (512, 64, 512, "f16", "os"),
    (64, 64, 64, "f16", "os"),
    (1, 4096, 1024, "f16", "os"),
    (8, 4096, 512, "f16", "os"),
    (33, 1000, 65, "f16", "os"),
    (32, 4096, 32, "f16", "os"),
    (1024, 32, 32, "f16", "os"),
    (1024, 256, 256, "f16", "ws"),
    (256, 512, 256, "f16", "ws"),
    (1, 1024, 1024, "f16", "ws"),
    (256, 256, 1024, "f16", "is"),
    (256, 512, 256, "f32", "is"),
    (64, 1024, 64, "f16", "is"),
)
"""M, K, N of each PE, type, dataflow."""
FLAGS = {"shapes": Flag(len(SHAPES), 1, "only the last shapes")}
PES = 8
SCRIPT = SCRIPTS / "benches" / "gemm.py"
MOST_MISSING = 0.10
LEAST_SHOWN = 0.005


def measured(shape: tuple[int, int, int, str, str], pes: int = PES) -> dict[str, Any]:
    """One row. ``parts``: of the kernels' time, by what it went to; they add up to it."""
    m, k, n, dtype, dataflow = shape
    setting = f"pe_gemm.dataflow={dataflow}"
    sizes = {"m": m * pes, "k": k, "n": n, "dtype": dtype, "cubes": 1, "pes": pes}
    args = [word for name, size in sizes.items() for word in (f"--{name}", size)]
    outcome = run(SCRIPT, script_args=args, sips=1, engine="inproc", verify_data=False, set=[setting])
    if outcome.error is not None or "wrong: 0" not in outcome.output:
        raise SystemExit(f"{shape}: {outcome.error or outcome.output}")
    (launch,) = outcome.document["launches"]
    components = load(overrides=[Override("pe_gemm.dataflow", dataflow, setting)]).components
    product = Product(m, k, n)
    least = bound(components, product, dtype, dtype)
    time_ps = ns_to_ps(launch["kernels_end_ns"]) - ns_to_ps(launch["kernels_start_ns"])
    busy_ns = dict(launch["busy_ns"])
    of_kernels = sum(busy_ns.values())
    of_commands = busy_ns.pop("gemm") / of_kernels
    commands = outcome.document["whole_run"]["engines"]["commands"]
    parts = {name: share * of_commands for name, share in commands.items()}
    parts.update((name, ns / of_kernels) for name, ns in busy_ns.items())
    return {
        **{"m": m, "k": k, "n": n, "dtype": dtype, "dataflow": dataflow, "pes": pes},
        "time_us": round(time_ps) / PS_PER_US,
        "tflops": 2 * product.macs * pes / time_ps,
        "peak": least.peak_ps / time_ps,
        "bound": least.peak_ps / least.least_ps,
        "bound_by": least.what,
        "reached": least.least_ps / time_ps,
        "loaded": least.loaded,
        "parts": parts,
    }


def shown_parts(row: dict[str, Any]) -> str:
    """The parts of the time, where much of the bound is missing."""
    parts = sorted(row["parts"].items(), key=lambda each: -each[1])
    text = ", ".join(f"{name} {share:.1%}" for name, share in parts if share >= LEAST_SHOWN)
    return text if 1 - row["reached"] > MOST_MISSING else ""


def measure(chosen: argparse.Namespace) -> dict[str, Any]:
    """A row for each shape."""
    sizes, shares = ("M:5", "K:5", "N:5", "type:>5", "flow:>4"), ("peak:7.1%", "bound:7.1%", "by:<9", "reached:7.1%")
    table, rows = Table(*sizes, "time us:9.3f", *shares, "loaded:7.2f", "parts of the time:<1"), []
    for shape in SHAPES[-chosen.shapes :]:
        row = measured(shape)
        keys = ("time_us", "peak", "bound", "bound_by", "reached", "loaded")
        table.row(*shape, *(row[key] for key in keys), shown_parts(row))
        rows.append(row)
    return {"rows": rows}
