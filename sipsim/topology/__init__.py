"""Topologies of SIPs, the links of each topology, and cluster descriptors of real systems."""
