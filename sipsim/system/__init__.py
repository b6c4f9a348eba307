"""All SIPs of a run as one description."""
