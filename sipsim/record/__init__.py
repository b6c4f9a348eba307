"""What happened: op log, trace of sends and receives, resource usage."""
