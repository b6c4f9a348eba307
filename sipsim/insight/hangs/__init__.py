"""What is told of kernels and scripts that wait or never end."""
