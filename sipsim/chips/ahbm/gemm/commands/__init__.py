"""The files of one subject, which become commands.py."""
