"""What a run reports: outcomes, failures, traces, progress."""
