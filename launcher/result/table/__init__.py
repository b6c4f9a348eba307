"""The files of one subject, which become table.py."""
