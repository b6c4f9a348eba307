"""The files of one subject, which become security.py."""
