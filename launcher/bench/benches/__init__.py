"""Benches: each module registers its benches with ``launcher.bench.base.BENCHES``."""
