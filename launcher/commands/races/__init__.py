"""The files of one subject, which become races.py."""
