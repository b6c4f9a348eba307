"""The files of one subject, which become transfer.py."""
