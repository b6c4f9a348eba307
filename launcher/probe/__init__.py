"""Command ``ahbm-probe``: flags, simulations, documents, text and heat maps."""
