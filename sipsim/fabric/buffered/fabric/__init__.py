"""The files of one subject, which become fabric.py."""
