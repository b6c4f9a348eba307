"""Engines, which start SIPs: functions with registered names that execute a run and return the run's outcome."""
