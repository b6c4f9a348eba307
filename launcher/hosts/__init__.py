"""Hosts of a run, local or reached through agents, and the loop that runs their processes."""
