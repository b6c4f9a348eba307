"""Reports of a run: outcomes, failures, traces, progress."""
