"""Link kinds between SIPs. A kind is one module here: its parameters and its cost, registered by name."""
