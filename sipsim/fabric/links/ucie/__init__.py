"""The files of one subject, which become ucie.py."""
