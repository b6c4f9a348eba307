"""The files of one subject, which become builtin_job.py."""
