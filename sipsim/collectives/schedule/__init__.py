"""The files of one subject, which become schedule.py."""
