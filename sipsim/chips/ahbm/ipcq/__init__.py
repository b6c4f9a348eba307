"""PE_IPCQ (ADR-0023): queue pairs, receives, credits, backpressure, invariants."""
