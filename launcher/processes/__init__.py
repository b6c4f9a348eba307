"""Processes of one host: their start, their names, their states."""
