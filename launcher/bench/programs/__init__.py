"""Host scripts of microbenchmarks: the guide's programs, as ``ahbm-bench`` runs them."""
