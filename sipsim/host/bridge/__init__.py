"""Ways to run host code beside the simulation."""
