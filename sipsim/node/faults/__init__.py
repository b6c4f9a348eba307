"""The files of one subject, which become faults.py."""
