"""The files of one subject, which become probe.py."""
