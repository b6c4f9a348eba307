"""Processes of one host: start, names and states of processes."""
