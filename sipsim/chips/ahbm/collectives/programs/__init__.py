"""The files of one subject, which become programs.py."""
