"""The files of one subject, which become files.py."""
