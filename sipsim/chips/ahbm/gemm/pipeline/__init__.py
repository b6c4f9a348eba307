"""The files of one subject, which become pipeline.py."""
