"""The files of one subject, which become mesh.py."""
