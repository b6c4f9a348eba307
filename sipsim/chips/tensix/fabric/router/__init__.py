"""The files of one subject, which become router.py."""
