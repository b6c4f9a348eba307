"""The files of one subject, which become remote.py."""
