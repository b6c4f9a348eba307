"""Chip ``ahbm``: a mesh of HBM cubes with PEs."""
