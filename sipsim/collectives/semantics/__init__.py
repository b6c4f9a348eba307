"""The files of one subject, which become semantics.py."""
