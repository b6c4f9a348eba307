"""The files of one subject, which become store.py."""
