"""Chip kinds: what a SIP is. A kind is one module with its definition, registered by name."""
