"""The benches, a module each, which registers one with ``launcher.bench.base.BENCHES``."""
