"""Where the processes of a run are, and the one loop that runs them: on this host, or on many through agents."""
