"""Switches between states of ``np.random``: each goes on as if it were alone, whatever was drawn."""

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sipsim.host import numpy_random

DRAWS = {
    "uniform": lambda source: source.random_sample(3).tolist(),
    "normal": lambda source: source.standard_normal(1).tolist(),
    "whole": lambda source: source.randint(0, 2**31, 5).tolist(),
    "seed": lambda source: source.seed(7),
    "set": lambda source: source.set_state(np.random.RandomState(9).get_state()),
    "nothing": lambda source: None,
}


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    state = np.random.get_state()
    yield
    np.random.set_state(state)


@given(turns=st.lists(st.tuples(st.integers(0, 2), st.sampled_from(sorted(DRAWS))), max_size=40))
@settings(max_examples=60, deadline=None)
def test_each_goes_on_as_if_alone(turns: list[tuple[int, str]]) -> None:
    """An odd number of normals leaves a value that the generator's words do not have."""
    alone = [np.random.RandomState(number) for number in range(3)]
    states = [numpy_random.state_of(each) for each in alone]
    for number, what in turns:
        outside = numpy_random.saved()
        numpy_random.install(states[number])
        assert DRAWS[what](np.random) == DRAWS[what](alone[number])
        states[number] = numpy_random.saved()
        numpy_random.install(outside)
    for state, each in zip(states, alone, strict=True):
        assert repr(state.state) == repr(each.get_state())


def test_a_switch_without_draws_does_not_ask_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = (numpy_random.state_of(np.random.RandomState(number)) for number in (1, 2))
    numpy_random.saved()
    numpy_random.install(first)
    for name in ("get_state", "set_state"):
        monkeypatch.setattr(np.random, name, lambda *_: pytest.fail("numpy was asked"))
    for state in (second, first, second):
        numpy_random.saved()
        numpy_random.install(state)
    monkeypatch.undo()
    assert np.random.random_sample() == np.random.RandomState(2).random_sample()


def test_another_generator_is_left_to_numpy() -> None:
    before, other = np.random.get_bit_generator(), np.random.MT19937(5)
    outside = numpy_random.saved()
    try:
        np.random.set_bit_generator(other)
        state = numpy_random.saved()
        np.random.random_sample()
        changed = numpy_random.saved()
        numpy_random.install(state)
        assert repr(np.random.get_state()) == repr(state.state) != repr(changed.state)
    finally:
        np.random.set_bit_generator(before)
    assert numpy_random.saved().words == outside.words
