"""Built-in neighbour tables. A table is one function, registered by name with its demands on the ranks."""
