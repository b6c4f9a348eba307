"""The files of one subject, which become network.py."""
