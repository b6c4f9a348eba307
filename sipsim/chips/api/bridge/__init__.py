"""The files of one subject, which become bridge.py."""
