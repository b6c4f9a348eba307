"""The files of one subject, which become registry.py."""
