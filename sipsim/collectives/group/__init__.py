"""The files of one subject, which become group.py."""
