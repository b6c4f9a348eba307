"""The command line: turns flags and config files into a run, starts and watches the processes, reports."""

import os

import ahbm_sim

DISTRIBUTION = "ahbm-sim"

_problem = ahbm_sim.problem(("broker", "sipsim"))
if _problem is not None:
    raise ImportError(_problem)

# Before NumPy is imported: threads of its BLAS are unsafe in a process that forks, and their number must not change
# a result.
for _name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")
