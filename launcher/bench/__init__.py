"""Command ``ahbm-bench``: microbenchmarks on simulated chips, next to published figures of the hardware."""
