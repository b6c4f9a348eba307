"""The files of one subject, which become results.py."""
