"""Records of a run: op log, trace of sends and receives, dumps, resource usage, and the report of each rank."""
