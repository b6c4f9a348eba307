"""The words a kernel may use."""
