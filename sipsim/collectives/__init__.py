"""Collectives: neighbour tables, installation into every PE_IPCQ, algorithm modules, diagnostics."""
