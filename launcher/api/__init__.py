"""The files of one subject, which become api.py."""
