"""The files of one subject, which become options.py."""
