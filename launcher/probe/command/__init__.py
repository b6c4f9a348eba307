"""The files of one subject, which become command.py."""
