"""The files of one subject, which become grids.py."""
