"""The files of one subject, which become kind.py."""
