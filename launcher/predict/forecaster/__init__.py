"""The files of one subject, which become forecaster.py."""
