"""The files of one subject, which become differences.py."""
