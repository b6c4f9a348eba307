"""The files of one subject, which become tiling.py."""
