"""The files of one subject, which become session.py."""
