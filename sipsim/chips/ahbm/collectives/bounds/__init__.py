"""The least times that collectives can take on a system, whatever the algorithm."""
