"""No object of a message, a command, a transfer or a handle lives longer than the message; no cycle holds one.

Python's collector of cycles is off, so a cycle counts as what is never freed. What an operation leaves by purpose is
its row, its record of a launch and its call, which the result file needs (``kept``).
"""

import gc
from collections.abc import Iterator

import pytest
from lives import PROGRAMS, growth

CONSTANT = 200
"""Objects that are on their way at one point and not at the other."""
SHORT = {"ahbm": 400, "rows": 100, "tensix": 300}
HOST = {
    "launches",
    "tensors",
    "tensor_math",
    "collectives",
    "point_to_point",
    "through a SIP",
    "groups",
    "sizes",
    "movers",
}
"""Programs whose messages are host calls, of many messages each."""
LONG, FEW = 100_000, 2_000
USUAL = {
    "over ethernet",
    "through a SIP",
    "iterations",
    "second pass",
    "operations",
    "groups",
    "sizes",
    "point_to_point",
}
USUAL |= {"tensors", "products", "checked", "mover", "mux", "fabric", "ring"}
"""Programs that always run."""


@pytest.fixture(autouse=True)
def unchecked(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """But for programs that ask for checks; and the collector is on again whatever happens."""
    monkeypatch.delenv("AHBM_CHECK_INVARIANTS")
    yield
    gc.enable()


@pytest.mark.parametrize(
    ("name", "is_long"),
    [
        *(pytest.param(name, False, marks=() if name in USUAL else pytest.mark.slow) for name in PROGRAMS),
        *(pytest.param(name, True, marks=pytest.mark.slow) for name in PROGRAMS),
    ],
)
def test_nothing_grows_with_messages(name: str, is_long: bool) -> None:
    program = PROGRAMS[name]
    few = FEW if is_long else 16
    messages = few if name in HOST else LONG if is_long else SHORT[program.script]
    found = growth(program, messages)
    passed = found.of(0)
    assert found.of(1) <= CONSTANT + program.kept * passed, found.kinds
