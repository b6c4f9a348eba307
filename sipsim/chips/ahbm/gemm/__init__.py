"""PE_GEMM: products of matrices on a systolic array, and composite commands that feed it tile by tile (ADR-0014)."""
