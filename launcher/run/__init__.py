"""Preparation and execution of a run: from flags to a plan, an outcome and result files."""
