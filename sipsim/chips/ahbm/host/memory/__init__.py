"""The files of one subject, which become memory.py."""
