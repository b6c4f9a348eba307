"""Sweeps over seeds and cases: a part of them runs always, the rest with ``--all``."""

from collections.abc import Iterable, Sequence
from itertools import product
from typing import Any

import pytest


def batches(count: int, size: int, ordinary: int = 1) -> list[Any]:
    """The first seed of each batch of ``size`` out of ``count``; batches after the first ``ordinary`` are slow."""
    starts = range(0, count, size)
    return some(starts, *starts[:ordinary])


def some(values: Iterable[Any], *ordinary: Any, names: int = 1) -> list[Any]:
    """The values of one parameter, or of ``names`` together; all but ``ordinary`` are slow."""
    found = list(values)
    assert ordinary
    assert all(each in found for each in ordinary), f"{ordinary} are not all among {found}"
    return [
        each
        if each in ordinary
        else pytest.param(*(each if isinstance(each, tuple) and names > 1 else (each,)), marks=pytest.mark.slow)
        for each in found
    ]


def crossed(*axes: Iterable[Any], ordinary: Sequence[tuple[Any, ...]] = ()) -> list[Any]:
    """All combinations of the values of some parameters; all but ``ordinary`` are slow.

    Without ``ordinary``, as many run always as it takes for each value of each axis to be in one.
    """
    values = [list(axis) for axis in axes]
    rows = list(product(*values))
    kept = ordinary or [tuple(axis[at % len(axis)] for axis in values) for at in range(max(map(len, values)))]
    assert all(row in rows for row in kept), f"{kept} are not all among {rows}"
    return [row if row in kept else pytest.param(*row, marks=pytest.mark.slow) for row in rows]
