"""The files of one subject, which become wirings.py."""
