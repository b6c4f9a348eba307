"""The files of one subject, which become work.py."""
