"""The files of one subject, which become check.py."""
