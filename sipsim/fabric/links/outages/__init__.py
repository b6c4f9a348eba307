"""The files of one subject, which become outages.py."""
