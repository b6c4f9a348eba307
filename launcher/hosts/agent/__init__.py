"""The files of one subject, which become agent.py."""
