"""Costs that every process derives from the config before simulated time begins."""
