"""The files of one subject, which become links.py."""
