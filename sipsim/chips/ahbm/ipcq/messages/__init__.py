"""The files of one subject, which become messages.py."""
