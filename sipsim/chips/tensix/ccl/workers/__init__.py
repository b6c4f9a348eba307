"""The files of one subject, which become workers.py."""
