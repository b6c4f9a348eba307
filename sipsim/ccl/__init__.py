"""Collectives: neighbour tables, their installation into every PE_IPCQ, algorithm modules, diagnostics."""
