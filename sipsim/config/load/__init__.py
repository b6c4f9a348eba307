"""The files of one subject, which become load.py."""
