"""The files of one subject, which become this_host.py."""
