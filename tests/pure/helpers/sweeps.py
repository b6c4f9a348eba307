"""Random sweeps: a part of the seeds runs always, the rest with ``--all``."""

from typing import Any

import pytest


def batches(count: int, size: int, ordinary: int = 1) -> list[Any]:
    """The first seed of each batch of ``size`` out of ``count``; batches after the first ``ordinary`` are slow."""
    starts = range(0, count, size)
    return [*starts[:ordinary], *(pytest.param(start, marks=pytest.mark.slow) for start in starts[ordinary:])]
