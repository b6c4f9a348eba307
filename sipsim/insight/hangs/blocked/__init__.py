"""The files of one subject, which become blocked.py."""
