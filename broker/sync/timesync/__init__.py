"""The files of one subject, which become timesync.py."""
