"""Transfers along rings, lines and trees, of which schedules are made."""
