"""Interface of a chip to the rest of the simulator: its kind, its plan, its bridge to host code."""
