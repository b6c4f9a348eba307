"""The files of one subject, which become control.py."""
