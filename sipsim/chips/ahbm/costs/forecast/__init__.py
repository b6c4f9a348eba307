"""The files of one subject, which become forecast.py."""
