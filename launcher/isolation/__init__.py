"""The files of one subject, which become isolation.py."""
