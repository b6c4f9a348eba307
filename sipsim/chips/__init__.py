"""Chip kinds: the models of a SIP. A kind is one module with its definition, registered by name."""
