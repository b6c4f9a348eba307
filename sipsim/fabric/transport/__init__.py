"""The files of one subject, which become transport.py."""
