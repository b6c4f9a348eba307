"""The files of one subject, which become tensor_math.py."""
