"""The files of one subject, which become checks.py."""
