"""Collectives on AHBM: algorithm modules, choice and cost, worker programs, and the queue pairs of process groups."""
