"""The files of one subject, which become cost.py."""
