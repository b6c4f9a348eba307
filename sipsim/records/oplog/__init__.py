"""The files of one subject, which become oplog.py."""
