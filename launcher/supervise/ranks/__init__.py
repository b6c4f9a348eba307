"""The files of one subject, which become ranks.py."""
