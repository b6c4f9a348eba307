"""The files of one subject, which become config.py."""
