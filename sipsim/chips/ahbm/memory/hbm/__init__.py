"""The files of one subject, which become hbm.py."""
