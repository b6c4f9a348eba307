"""The files of one subject, which become schedules.py."""
