"""Where the time of a run went: the critical path and its parts, phases, and what a halved cost would change."""
