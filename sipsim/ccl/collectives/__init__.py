"""Collectives: what is exchanged. How, an algorithm decides."""
