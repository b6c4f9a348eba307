"""Records of a run: op log, trace of sends and receives, resource usage."""
