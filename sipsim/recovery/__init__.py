"""Recovery of restarted SIPs: the packet log, and the check of replayed packets."""
