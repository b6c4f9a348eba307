"""Supervision of a run's processes: exits, restarts, deadlines."""
