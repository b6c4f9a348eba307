"""The files of one subject, which become ports.py."""
