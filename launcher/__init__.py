"""Commands of the simulator: turn flags and config files into a run, start and supervise processes, report results."""

import os

import ahbm_sim

DISTRIBUTION = "ahbm-sim"

_problem = ahbm_sim.problem(("broker", "sipsim"))
if _problem is not None:
    raise ImportError(_problem)

# Set before NumPy is imported: BLAS threads are unsafe in a process that forks, and their number must not change a
# result.
for _name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")
