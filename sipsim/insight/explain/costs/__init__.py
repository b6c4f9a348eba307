"""The files of one subject, which become costs.py."""
