"""The files of one subject, which become sockets.py."""
