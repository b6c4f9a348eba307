"""The files of one subject, which become sip.py."""
