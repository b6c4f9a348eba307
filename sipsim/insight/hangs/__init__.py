"""Diagnosis of hangs: explains deadlocks, and shows the code positions of kernels and scripts that do not end."""
