"""The files of one subject, which become fields.py."""
