"""The files of one subject, which become report.py."""
