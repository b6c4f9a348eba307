"""The files of one subject, which become launch.py."""
