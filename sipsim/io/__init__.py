"""Packets between SIPs."""
