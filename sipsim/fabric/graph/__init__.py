"""The files of one subject, which become graph.py."""
