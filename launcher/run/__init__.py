"""One run: from flags to a plan, an engine, a table and a result file."""
