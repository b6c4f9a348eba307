"""The files of one subject, which become exchange.py."""
