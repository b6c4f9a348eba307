"""Link kinds between SIPs. A kind is one module with its parameters and its cost, registered by name."""
