"""The CCL guide's operations on the fabric of data movers: kernels of worker tiles, on tensors in DRAM or in L1."""
