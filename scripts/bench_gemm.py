"""Matrix products on PEs against what bounds them: stall-free cycles of the array, and memory. ``--json FILE``.

Each row is a run of ``scripts/benches/gemm.py`` on the PEs of a cube. ``bound`` is the part of the peak that the
product can reach at most: by the array, whose cycles are SCALE-Sim's, by memory, ``bandwidth x intensity`` with each
element moved once, or by the read port of the TCM. ``reached`` is the part of the bound. ``loaded``: bytes that tiles
load, against those of A and B. Where more than 10 % of the bound is missing, the row says where the kernels' time
went, by the run's own output: cycles, fill and drain, what the array waited for (``sipsim.pe.gemm.division``), page
walks, issue.
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from benches.gemm import bound

from launcher.api import run
from sipsim.chips.load import load
from sipsim.config.override import Override
from sipsim.pe.gemm.array import Product
from sipsim.units import ns_to_ps, ps_to_us

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
PES = 8
SCRIPT = Path(__file__).parent / "benches" / "gemm.py"
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
        "time_us": ps_to_us(time_ps),
        "tflops": 2 * product.macs * pes / time_ps,
        "peak": least.peak_ps / time_ps,
        "bound": least.peak_ps / least.least_ps,
        "bound_by": least.what,
        "reached": least.least_ps / time_ps,
        "loaded": least.loaded,
        "parts": parts,
    }


def shown(row: dict[str, Any]) -> str:
    """A line of the table."""
    first = f"{row['m']:>5}{row['k']:>6}{row['n']:>6} {row['dtype']:>5} {row['dataflow']:>3}{row['time_us']:>10.3f}"
    shares = f"{row['peak']:>8.1%}{row['bound']:>8.1%} {row['bound_by']:<10}{row['reached']:>8.1%}{row['loaded']:>8.2f}"
    parts = sorted(row["parts"].items(), key=lambda each: -each[1])
    told = ", ".join(f"{name} {share:.1%}" for name, share in parts if share >= LEAST_SHOWN)
    return f"{first}{shares}  {told if 1 - row['reached'] > MOST_MISSING else ''}".rstrip()


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", metavar="FILE", help="write the rows as JSON")
    parser.add_argument("--shapes", type=int, default=len(SHAPES), metavar="N", help="only the last N shapes")
    chosen = parser.parse_args()
    print("    M     K     N  type flow   time us    peak   bound by        reached  loaded  parts of the time")
    rows = []
    for shape in SHAPES[-chosen.shapes :]:
        rows.append(measured(shape))
        print(shown(rows[-1]), flush=True)
    if chosen.json:
        Path(chosen.json).write_text(json.dumps({"rows": rows}, indent=2), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
