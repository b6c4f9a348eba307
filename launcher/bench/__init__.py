"""``ahbm-bench``: microbenchmarks on simulated chips, beside what was published of the hardware."""
