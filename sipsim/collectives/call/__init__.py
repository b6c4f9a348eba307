"""The files of one subject, which become call.py."""
