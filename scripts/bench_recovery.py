"""What it costs to be able to come back, and to come back. Two tables, and ``--json FILE``.

``logging``: a run without faults, with packet logs (--max-restarts 3) and without, in alternating pairs; the ratio of
each pair's wall times, and the median of those. ``recovery``: SIP 0 dies at half of the simulated time and is started
again; next to it the same run without the death, and what SIP 0 may cost at most: that run, its compute so far (taken
as half of what it computes in all), and a second. Times are the
simulation's, from the first grant to the end, as the runs tell of themselves.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
MOST_S = 1.0


class Bench:
    """Runs of one size. Every digest must be the same."""

    def __init__(self, folder: str, argv: list[str]) -> None:
        self._out = Path(folder) / "out.json"
        self._argv = argv
        self.digests: set[str] = set()

    def run(self, *flags: str) -> dict[str, Any]:
        """What one run tells of itself."""
        command = [str(ROOT / "scripts" / "ahbm-launch"), *self._argv, "--json", str(self._out), *flags]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        document: dict[str, Any] = json.loads(self._out.read_text())
        self.digests.add(document["digest"])
        return document


def simulate_s(document: dict[str, Any]) -> float:
    """Wall seconds from the first grant to the end."""
    found: float = document["wall_s"]["simulate"]
    return found


def logging_pairs(bench: Bench, pairs: int) -> list[dict[str, float]]:
    """Alternating, and which comes first alternates too: what changes slowly on this machine hits both alike."""
    found = []
    for number in range(pairs):
        sides: list[tuple[str, list[str]]] = [("without_s", []), ("with_s", ["--max-restarts", "3"])]
        took = {name: simulate_s(bench.run(*flags)) for name, flags in (sides if number % 2 else sides[::-1])}
        found.append({**took, "ratio": took["with_s"] / took["without_s"]})
    return found


def recoveries(bench: Bench, count: int) -> list[dict[str, float]]:
    """Each next to a run without the death."""
    found = []
    for _ in range(count):
        fair = bench.run("--max-restarts", "3")
        half_ps = max(rank["sim_end_ps"] for rank in fair["ranks"]) // 2
        hurt = bench.run("--max-restarts", "3", "--fault", f"kill:0@{half_ps}ps")
        assert hurt["ranks"][0]["restarts"] == 1, "the fault was not injected"
        compute_s = fair["ranks"][0]["run_s"] / 2
        row = {"fair_s": simulate_s(fair), "hurt_s": simulate_s(hurt), "compute_s": compute_s}
        found.append({**row, "allowed_s": row["fair_s"] + compute_s + MOST_S})
    return found


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=9, help="of runs with and without logs (9)")
    parser.add_argument("--deaths", type=int, default=5, help="runs with a death at half (5)")
    parser.add_argument("--bytes", default="4M", help="size of the all-reduce (4M)")
    parser.add_argument("--sips", default="4", help="how many SIPs (4)")
    parser.add_argument("--json", type=Path, help="write all rows")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(folder, ["--bytes", chosen.bytes, "--sips", chosen.sips, "--engine", "local"])
        bench.run()  # makes the environment where there is none
        pairs = logging_pairs(bench, chosen.pairs)
        deaths = recoveries(bench, chosen.deaths)
    assert len(bench.digests) == 1, bench.digests
    print(f"# --bytes {chosen.bytes} --sips {chosen.sips}, digest {bench.digests.pop()} in every run")
    print(f"{'logging':<10}{'without':>10}{'with':>10}{'ratio':>8}")
    for pair in pairs:
        print(f"{'':<10}{pair['without_s']:>8.2f} s{pair['with_s']:>8.2f} s{pair['ratio']:>8.3f}")
    print(f"{'median':<30}{statistics.median(pair['ratio'] for pair in pairs):>8.3f}")
    print(f"{'recovery':<10}{'no death':>10}{'death':>10}{'compute':>10}{'allowed':>10}")
    for death in deaths:
        print(f"{'':<10}" + "".join(f"{death[key]:>8.2f} s" for key in ("fair_s", "hurt_s", "compute_s", "allowed_s")))
    if chosen.json:
        chosen.json.write_text(json.dumps({"logging": pairs, "recovery": deaths}, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
