"""The files of one subject, which become catalog.py."""
