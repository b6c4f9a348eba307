"""What users are told: outcomes, failures, traces, progress."""
