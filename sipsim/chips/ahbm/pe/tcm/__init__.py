"""The files of one subject, which become tcm.py."""
