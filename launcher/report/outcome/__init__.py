"""The files of one subject, which become outcome.py."""
