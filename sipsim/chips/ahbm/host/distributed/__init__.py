"""The files of one subject, which become distributed.py."""
