"""The files of one subject, which become critical_path.py."""
