"""Built-in neighbour tables. A table is one function here, registered by name with what it asks of the ranks."""
