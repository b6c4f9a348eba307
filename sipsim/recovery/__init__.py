"""The log of sent packets, and the check that a restarted SIP repeats it."""
