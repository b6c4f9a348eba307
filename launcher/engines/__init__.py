"""Engines: where SIPs run. An engine is a function with a registered name that runs a plan and returns its outcome."""
