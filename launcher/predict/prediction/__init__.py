"""The files of one subject, which become prediction.py."""
