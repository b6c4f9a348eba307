"""The files of one subject, which become pairs.py."""
