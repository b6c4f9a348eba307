"""The files of one subject, which become channel.py."""
