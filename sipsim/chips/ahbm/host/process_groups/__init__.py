"""The files of one subject, which become process_groups.py."""
