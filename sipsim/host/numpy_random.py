"""The state of ``np.random`` for a switch between ranks: numpy's own functions take 70 us each way, so they are used
only where something was drawn.

Where the generator is the one that numpy starts with, its words (MT19937: 624 and a position) are looked at and set in
place. What is not among them is the second value of a normal distribution that was drawn before; a state that has one
goes numpy's way, and so does another generator.
"""

import ctypes
from typing import Any, Final, NamedTuple

import numpy as np

_WORDS_BYTES: Final = 625 * 4
_GAUSS_KEPT: Final = 3
"""Where a state of numpy says so."""


_bit_generator = np.random.get_bit_generator  # type: ignore[attr-defined]


class NumpyState(NamedTuple):
    """``state``: as numpy has it. ``words``: as the generator has them; empty if they do not tell all of it."""

    state: Any
    words: bytes


class _Last:
    """The state that was saved or installed last."""

    state = NumpyState(None, b"")


def state_of(random: np.random.RandomState) -> NumpyState:
    """That of a generator of one's own."""
    return _made(random.get_state())


def saved() -> NumpyState:
    """The state now."""
    last = _Last.state
    if not last.words or _words() != last.words:
        last = _Last.state = _made(np.random.get_state())
    return last


def install(state: NumpyState) -> None:
    """Set a state, in place of one that :func:`saved` has just returned."""
    address = _address()
    if address and state.words and _Last.state.words:
        ctypes.memmove(address, state.words, _WORDS_BYTES)
    else:
        np.random.set_state(state.state)
    _Last.state = state


def _made(state: Any) -> NumpyState:
    if not isinstance(state, tuple) or state[0] != "MT19937" or state[_GAUSS_KEPT]:
        return NumpyState(state, b"")
    return NumpyState(state, np.asarray(state[1], np.uint32).tobytes() + int(state[2]).to_bytes(4, "little"))


def _address() -> int:
    """Of the words; 0 where they are not known."""
    return _ADDRESS if _bit_generator() is _GENERATOR else 0


def _words() -> bytes:
    address = _address()
    return ctypes.string_at(address, _WORDS_BYTES) if address else b""


_GENERATOR: Final = _bit_generator()


def _known_address() -> int:
    """0 for a generator whose words do not lie as they are known to."""
    if type(_GENERATOR).__name__ != "MT19937":
        return 0
    address = int(_GENERATOR.ctypes.state_address)
    now = np.random.get_state()
    words = np.asarray(now[1], np.uint32).tobytes() + int(now[2]).to_bytes(4, "little")  # type: ignore[index]
    return address if ctypes.string_at(address, _WORDS_BYTES) == words else 0


_ADDRESS: Final = _known_address()
