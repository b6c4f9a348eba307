"""Collectives, independent of a chip: definitions, algorithms as schedules, checks of schedules and of calls."""
