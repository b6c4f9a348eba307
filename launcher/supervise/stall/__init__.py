"""The files of one subject, which become stall.py."""
