"""Arguments of ``mp.spawn``: what a rank gets equals what the script gave, in value and type."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sipsim.core.errors import ConfigError
from sipsim.records.spawn_call import SpawnCall

NUMBERS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.complex_numbers(allow_nan=False)
KEYS = NUMBERS | st.text(max_size=5) | st.binary(max_size=5)
ARRAYS = st.sampled_from(["i1", "<u8", ">f4", "<c8", "?", "<U3", "S2"]).map(lambda kind: np.zeros((2, 0, 3), kind))
VALUES: st.SearchStrategy[Any] = st.recursive(
    KEYS | ARRAYS | st.just(np.arange(6, dtype="<f2").reshape(3, 2)[::2]) | st.just(np.float32(1.5)),
    lambda inner: (
        st.lists(inner, max_size=3) | st.lists(inner, max_size=3).map(tuple) | st.dictionaries(KEYS, inner, max_size=3)
    ),
    max_leaves=8,
)


def worker(rank: int) -> None:
    pass


def same(one: Any, other: Any) -> bool:
    if type(one) is not type(other):
        return False
    if isinstance(one, np.ndarray):
        return one.dtype == other.dtype and one.shape == other.shape and bool((one == other).all())
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict):
        return [*map(repr, one)] == [*map(repr, other)] and all(map(same, one.values(), other.values()))
    return bool(one == other)


@given(st.lists(VALUES, max_size=4))
def test_arguments_arrive_as_they_were_given(values: list[Any]) -> None:
    call = SpawnCall.of(worker, tuple(values))
    assert (call.module, call.name) == (__name__, "worker")
    assert same(call.args(), values)
    assert all(each.flags.writeable for each in call.args() if isinstance(each, np.ndarray))


def test_each_rank_gets_its_own_copies() -> None:
    call = SpawnCall.of(worker, ([1],))
    call.args()[0].append(2)
    assert call.args() == [[1]]


class Thing:
    def method(self) -> None:
        pass


LOOP: list[Any] = []
LOOP.append(LOOP)


@pytest.mark.parametrize(
    ("value", "where"),
    [
        (Thing(), "args[0] is a Thing"),
        ([1, {"a": Thing()}], "args[0][1]['a'] is a Thing"),
        ({1, 2}, "args[0] is a set"),
        (np.array([Thing()]), "args[0] is a ndarray"),
        (LOOP, "args are nested too deeply"),
    ],
)
def test_other_arguments_are_refused_with_their_place(value: Any, where: str) -> None:
    with pytest.raises(ConfigError) as caught:
        SpawnCall.of(worker, (value,))
    assert where in str(caught.value)


def closure() -> Any:
    def inside(rank: int) -> None:
        pass

    return inside


@pytest.mark.parametrize("fn", [lambda rank: None, closure(), Thing().method, Thing, "worker", None])
def test_a_function_without_a_module_level_name_is_refused(fn: Any) -> None:
    with pytest.raises(ConfigError, match="no module-level name"):
        SpawnCall.of(fn, ())


def generator(rank: int) -> Any:
    yield rank


def test_a_generator_is_refused_by_name() -> None:
    with pytest.raises(ConfigError, match="generator must be a plain function"):
        SpawnCall.of(generator, ())


def test_arguments_are_a_sequence() -> None:
    with pytest.raises(ConfigError, match="give a tuple"):
        SpawnCall.of(worker, 2)  # type: ignore[arg-type]
