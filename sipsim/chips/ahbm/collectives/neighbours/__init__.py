"""The files of one subject, which become neighbours.py."""
