"""The files of one subject, which become prepare.py."""
