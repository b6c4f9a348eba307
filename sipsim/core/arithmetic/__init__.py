"""Arithmetic of simulated operations, with the same bits on every machine; used by the models and by the replay."""
