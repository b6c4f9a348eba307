"""The files of one subject, which become ethernet.py."""
