"""Modules that documents of earlier versions named: the old import names the new module, an old entry still runs."""

import importlib
import sys

import pytest

from sipsim.chips.ahbm.collectives.algorithm import Algorithm, exports
from sipsim.chips.ahbm.collectives.settings import canonical_algorithm
from sipsim.chips.config import load
from sipsim.config.load import parse_set
from sipsim.core.moved import LABEL, MOVED, SCHEDULES

ALGORITHMS = [old for old in MOVED if old.startswith(f"{LABEL}.")]


@pytest.mark.parametrize("old", MOVED)
def test_an_old_import_names_the_new_module(old: str) -> None:
    if MOVED[old].startswith("sipsim."):
        assert importlib.import_module(MOVED[old]).__name__ == MOVED[old]
    with pytest.raises(ImportError) as caught:
        importlib.import_module(old)
    assert caught.value.name is not None
    assert old.startswith(caught.value.name)
    assert f"{old} is {MOVED[old]}" in str(caught.value)
    assert old not in sys.modules


def test_a_name_that_was_never_one_is_not_found() -> None:
    with pytest.raises(ModuleNotFoundError, match=r"No module named 'sipsim\.nothing'"):
        importlib.import_module("sipsim.nothing")


@pytest.mark.parametrize("old", ALGORITHMS)
def test_an_entry_with_an_old_path_is_the_same_algorithm(old: str) -> None:
    name = old.rpartition(".")[2]
    was, now = (load(overrides=[parse_set(f"algorithms.{name}.module={path}")]) for path in (old, MOVED[old]))
    assert Algorithm(name, was.ccl.algorithms[name]).about == Algorithm(name, now.ccl.algorithms[name]).about
    assert canonical_algorithm(was, name)[1] == canonical_algorithm(now, name)[1] == old
    assert exports(old, "schedule") == exports(MOVED[old], "schedule") == MOVED[old].startswith(SCHEDULES)
