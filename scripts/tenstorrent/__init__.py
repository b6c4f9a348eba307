"""Simulated figures of Tenstorrent chips beside published ones: comparison, tables, mechanisms, fit of costs."""
