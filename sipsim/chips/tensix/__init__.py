"""Chips of Tensix tiles and Ethernet cores: NoCs, memories, cores that run kernels, and the data mover."""
