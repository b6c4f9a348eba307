"""The rules by which the second pass performs records, one for each kind, defined beside the engine that writes it.

A rule is ``rule(pe, *fields)`` with the fields of its kind, as in :data:`sipsim.records.oplog.oplog.FIELDS`. It returns
the values that the first pass must have told of that record, an array or bytes: those of the ``result`` of its command,
if it has one, else what the engine tells (:meth:`sipsim.chips.ahbm.pe.engine.engines.CommandEngine.tell`). It reads and
writes by ``pe`` alone::

    @replays(MATH)
    def replay_math(pe: ReplayPe, op: str, dtype: str, shape: str, operands: str, result: str) -> Array:
        return elementwise(op, tuple(map(pe.value, operands.split(","))), DTYPES[dtype])

A rule whose values are bytes of memories says so (``values``), so that races are looked for where they differ.

A kind without a rule ends the second pass of its SIP, which says so.
"""

import sys
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np

from sipsim.core.registry.registry import note_definer, on_forget

Array = np.ndarray[Any, Any]
Values = Array | bytes


class WrongRecord(Exception):
    """A record that contradicts what the first pass has told, as its message says."""


class ReplayPe(Protocol):
    """One PE in the second pass. Addresses are physical and of its SIP. ``told``: the values of the first pass for this
    record, None where it told none; only a rule whose record does not say them may use them.
    """

    told: Values | None

    def value(self, name: str) -> Array:
        """The values of a handle of this PE.

        Raises:
            WrongRecord: for a handle that no record has filled, or that nothing can name any more.
        """

    def read(self, address: int, nbytes: int) -> bytes:
        """Bytes of the SIP's memories."""

    def write(self, address: int, data: bytes) -> None:
        """Write to the SIP's memories."""

    def send(self, dst: str, address: int, seq: int, direction: str, data: bytes) -> None:
        """Message ``seq`` leaves for the slot at ``address`` of PE ``dst`` (sip.cube.pe)."""

    def message(self, address: int, seq: int, nbytes: int) -> bytes:
        """Take the message that arrived in the slot at ``address``.

        Raises:
            WrongRecord: when none has arrived there.
        """


def read_rows(pe: ReplayPe, address: int, rows: int, row_bytes: int, pitch: int) -> bytes:
    """The bytes of rows that begin ``pitch`` bytes apart, one after the other."""
    return b"".join([pe.read(address + row * pitch, row_bytes) for row in range(rows)])


def write_rows(pe: ReplayPe, address: int, data: bytes, row_bytes: int, pitch: int) -> None:
    """Write ``data`` to such rows."""
    for row, at in enumerate(range(0, len(data), row_bytes)):
        pe.write(address + row * pitch, data[at : at + row_bytes])


Rule = Callable[..., Values | None]
AnyRule = TypeVar("AnyRule", bound=Rule)
COMPUTED, READ, WRITTEN = "computed", "read", "written"
"""What the values of a rule are: made from others, or the bytes that it has read or written, in this order."""


class KnownRule(NamedTuple):
    """A rule, what its values are, and its module."""

    perform: Rule
    values: str
    module: str


_RULES: dict[str, KnownRule] = {}


def replays(kind: str, values: str = COMPUTED) -> Callable[[AnyRule], AnyRule]:
    """Function decorator: the rule for the records of a kind. ``values``: what they are, one of the three above.

    Raises:
        ValueError: for a kind that has one from another module.
    """

    def add(rule: AnyRule) -> AnyRule:
        module = rule.__module__
        known = _RULES.get(kind)
        if known is not None and known.module != module:
            raise ValueError(f"records of kind {kind!r} have two replay rules, of {known.module} and of {module}")
        _RULES[kind] = KnownRule(rule, values, module)
        note_definer(module)
        return rule

    return add


def rule_of(kind: str) -> KnownRule | None:
    """The rule for the records of a kind; None for none."""
    return _RULES.get(kind)


@on_forget
def _forget() -> None:
    for kind in [kind for kind, rule in _RULES.items() if rule.module not in sys.modules]:
        del _RULES[kind]
