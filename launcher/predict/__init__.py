"""Prediction of simulated time, wall time and memory of a run on this host."""
