"""The files of one subject, which become progress.py."""
