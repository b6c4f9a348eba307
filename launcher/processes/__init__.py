"""The processes of one host: starting them, their names, their states."""
