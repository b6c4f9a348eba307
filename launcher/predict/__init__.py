"""What a run will take: wall time and memory on this host."""
