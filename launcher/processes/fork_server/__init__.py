"""The files of one subject, which become fork_server.py."""
