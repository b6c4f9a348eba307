"""The files of one subject, which become simulate.py."""
