"""The files of one subject, which become math.py."""
