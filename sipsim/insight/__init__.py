"""Analysis of a run: critical path and costs, causes of hangs, and the second pass that checks its data."""
