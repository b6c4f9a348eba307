"""The files of one subject, which become pool.py."""
