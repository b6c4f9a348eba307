"""The files of one subject, which become prices.py."""
