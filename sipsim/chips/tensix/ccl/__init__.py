"""Collective operations of the CCL guide: kernels of worker tiles that use the fabric, on tensors in DRAM or L1."""
