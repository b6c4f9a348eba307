"""The files of one subject, which become tensors.py."""
