"""The files of one subject, which become engine.py."""
