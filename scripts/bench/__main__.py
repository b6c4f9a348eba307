"""Measures one subject: speed of the simulator, or simulated figures beside what is known of them.

    python scripts/bench                       the benches
    python scripts/bench NAME --help           the flags of one
    python scripts/bench NAME --quick          less of it, in seconds
    python scripts/bench NAME --json FILE      the figures as a document, too

A bench prints tables. Its exit code is 1 where what it claims does not hold. It needs the Python of an environment with
the dependencies.
"""

import gc
import importlib
import sys
from pathlib import Path

SCRIPTS = Path(__file__).resolve().parents[1]

if __name__ == "__main__":
    sys.path[:1] = [str(SCRIPTS), str(SCRIPTS.parent)]
    # As in the processes that ahbm-launch starts.
    gc.set_threshold(importlib.import_module("launcher.run.run").OBJECTS_BETWEEN_COLLECTIONS)
    sys.exit(importlib.import_module("bench.kit").main(sys.argv[1:], __doc__))
