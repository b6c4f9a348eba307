"""The keys of a run, who may connect, and where a process may listen."""
