"""Link kinds between SIPs. A kind is one module with its parameters and its costs, registered by name."""
