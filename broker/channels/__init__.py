"""The files of one subject, which become channels.py."""
