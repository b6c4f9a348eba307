"""The files of one subject, which become rules.py."""
