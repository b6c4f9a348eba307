"""The files of one subject, which become language.py."""
