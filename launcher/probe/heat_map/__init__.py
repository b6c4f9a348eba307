"""The files of one subject, which become heat_map.py."""
