"""Inter-SIP topologies, the links that follow from them, and physical addresses."""
