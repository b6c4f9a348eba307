"""The files of one subject, which become reduction.py."""
