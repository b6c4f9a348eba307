"""The files of one subject, which become entry.py."""
