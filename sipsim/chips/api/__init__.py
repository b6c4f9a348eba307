"""What a chip is to the rest: its kind, its plan, its bridge to host code."""
