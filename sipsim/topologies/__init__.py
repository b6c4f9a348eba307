"""Inter-SIP topologies. A topology is one function here, registered by name with its number of dimensions."""
