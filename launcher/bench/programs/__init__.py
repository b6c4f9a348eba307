"""Host scripts of ``ahbm-bench``: the microbenchmark programs of the guide."""
