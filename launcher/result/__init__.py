"""Results of a run: document, files, table."""
