"""The files of one subject, which become noc.py."""
