"""Injected faults: their plan, and their execution inside a SIP's process."""
