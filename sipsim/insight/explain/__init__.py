"""Explanation of the time of a run: the critical path and its parts, phases, and savings if a cost were halved."""
