"""The files of one subject, which become replay.py."""
