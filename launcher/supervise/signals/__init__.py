"""The files of one subject, which become signals.py."""
