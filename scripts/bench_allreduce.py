"""``scripts/bench allreduce`` by another name: CPU time a transfer, and its table over time."""

import runpy
import sys
from pathlib import Path

if __name__ == "__main__":
    sys.argv.insert(1, "allreduce")
    runpy.run_path(str(Path(__file__).with_name("bench")), run_name="__main__")
