"""Operations of tensors, as kernels in simulated time."""
