"""Deaths, restarts and deadlines of the processes of a run."""
