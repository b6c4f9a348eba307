"""The files of one subject, which become colocation.py."""
