"""The files of one subject, which become lines.py."""
