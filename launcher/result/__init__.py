"""What a run leaves: the result document, its files, the table."""
