"""The files of one subject, which become schema.py."""
