"""The files of one subject, which become layout.py."""
