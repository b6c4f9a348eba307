"""The files of one subject, which become stream.py."""
