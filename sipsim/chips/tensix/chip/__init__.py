"""The files of one subject, which become chip.py."""
