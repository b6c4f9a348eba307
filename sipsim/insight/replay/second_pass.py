"""Performs the records of one SIP again, and compares.

Values that differ are taken over from the first pass, so that each record is judged by itself. So are messages. Each
carries a CRC of what its sender has sent: the sender's second pass compares it with the record of the send, the
receiver's with what has arrived.
"""

from collections import deque

import numpy as np

from sipsim.chips.ahbm.memory.store import MemoryStore
from sipsim.insight.replay.differences import Differences, Numbered, Range, are_same, where_wrong
from sipsim.records.oplog import FIELDS
from sipsim.records.replay import (
    READ,
    WRITTEN,
    Array,
    Arrival,
    Gone,
    Item,
    Rule,
    ToldRecord,
    Values,
    Verdict,
    WrongRecord,
    message_crc,
    rule_of,
)

RESULT = "result"
"""The field of a kind that names the handle with the values of its record."""
CUBE, FIRST_FIELD = 3, 5
"""Where a record has its cube and PE, and the fields of its kind."""


class _Pe:
    """See :class:`~sipsim.records.replay.ReplayPe`. ``item``: the present record, number ``number``, and
    ``reads`` and ``writes`` its ranges.
    """

    def __init__(self, second_pass: "SecondPass") -> None:
        self._pass = second_pass
        self._memory = second_pass.memory
        self.values: dict[str, tuple[Array, Gone | None]] = {}
        self.item: ToldRecord = (), None, None, None, 0
        self.number = 0
        self.reads: list[Range] = []
        self.writes: list[Range] = []
        self.reads_message = False
        self._by: Numbered | None = None

    @property
    def told(self) -> Values | None:
        return self.item[1]

    @property
    def by(self) -> Numbered:
        """The present record."""
        if self._by is None or self._by.number != self.number:
            record, _, _, taken_ps, _ = self.item
            self._by = Numbered(self.number, record, record[1] if taken_ps is None else taken_ps)
        return self._by

    def value(self, name: str) -> Array:
        try:
            return self.values[name][0]
        except KeyError:
            raise WrongRecord(f"no record has filled {name} of this PE, or nothing names it any more") from None

    def read(self, address: int, nbytes: int) -> bytes:
        self.reads.append((address, nbytes))
        return self._memory.read(address, nbytes)

    def write(self, address: int, data: bytes) -> None:
        self.writes.append((address, len(data)))
        self._memory.write(address, data)
        by = self.by
        self._pass.differences.wrote(address, len(data), by.start_ps, by.record[2], by)

    def take_over(self, data: bytes) -> None:
        """Have the memory as the first pass has left it, by the same writes."""
        at = 0
        for address, nbytes in self.writes:
            self._memory.write(address, data[at : at + nbytes])
            at += nbytes

    def send(self, address: int, seq: int, direction: str, data: bytes) -> None:
        _, told, _, _, crc = self.item
        if message_crc(address, seq, direction, told if isinstance(told, bytes) else data) != crc:
            raise WrongRecord("the message that was sent has another number, direction or slot")

    def message(self, address: int, seq: int, nbytes: int) -> bytes:
        self.reads.append((address, nbytes))
        self.reads_message = True
        data = self._pass.messages.pop((address, seq), None)
        if data is None:
            raise WrongRecord(f"message {seq} has not arrived in the slot at {address:#x}")
        return data


class SecondPass:
    """The second pass of one SIP, on ``memory``, empty at first. ``messages``: in slots, by address and number."""

    def __init__(self, memory: MemoryStore) -> None:
        self.memory = memory
        self.differences = Differences(memory.canonical)
        self.messages: dict[tuple[int, int], bytes] = {}
        self._rules: dict[str, tuple[Rule, str, int]] = {}
        self._pes: dict[tuple[int, int], _Pe] = {}
        self._records = 0
        self._stopped = ""

    def perform(self, items: deque[Item]) -> None:
        """Take all items, which leave the queue."""
        while items:
            item = items.popleft()
            if type(item) is tuple:
                self._record(item)
            elif type(item) is Gone:
                if item.values is not None:
                    item.values.pop(item.name, None)
            elif type(item) is Arrival:
                self._arrival(item)

    def host_wrote(self, address: int, data: bytes | memoryview, now_ps: int) -> None:
        """The host writes to a memory."""
        self.memory.write(address, data)
        self.differences.wrote(address, len(data), now_ps, now_ps, "the host")

    def host_cleared(self, address: int, nbytes: int, now_ps: int) -> None:
        """The host sets bytes to zero."""
        self.memory.clear(address, nbytes)
        self.differences.wrote(address, nbytes, now_ps, now_ps, "the host")

    def verdict(self, memory: MemoryStore) -> Verdict:
        """After the last record; ``memory`` is that of the first pass."""
        if not self._stopped:
            self._compare(memory)
        return Verdict(
            records=self._records,
            stopped=self._stopped,
            differences=self.differences.count,
            difference=self.differences.first(),
            races=self.differences.races,
            first_race=self.differences.first_race,
        )

    def _record(self, item: ToldRecord) -> None:
        record, told, gone, *_ = item
        if self._stopped:
            return
        known = self._rules.get(record[0]) or self._find_rule(record[0])
        if known is None:
            return
        perform, are, result_at = known
        place = record[CUBE:FIRST_FIELD]
        pe = self._pes.get(place)
        if pe is None:
            pe = self._pes[place] = _Pe(self)
        self._records += 1
        pe.item, pe.number = item, self._records
        if pe.reads or pe.writes:
            pe.reads, pe.writes, pe.reads_message = [], [], False
        try:
            values = perform(pe, *record[FIRST_FIELD:])
        except MemoryError:
            raise
        except Exception as error:
            text = str(error) if isinstance(error, WrongRecord) else f"its rule fails: {type(error).__name__}: {error}"
            self.differences.of_record(pe.by, text)
            values = told
        else:
            if told is not None and not are_same(told, values):
                self._compare_values(pe, are, told, values)
                values = told
        if gone is not None and isinstance(values, np.ndarray):
            if result_at and record[result_at] != gone.name:
                self.differences.of_record(pe.by, f"its values are those of {gone.name}")
            gone.values = pe.values
            pe.values[gone.name] = values, gone
        elif result_at and isinstance(values, np.ndarray):
            # The first pass told nothing of it, and not when it is gone.
            pe.values[str(record[result_at])] = values, None

    def _find_rule(self, kind: str) -> tuple[Rule, str, int] | None:
        """The rule of a kind, what its values are, and the place of ``result`` in its records, 0 for none."""
        rule, names = rule_of(kind), FIELDS[kind]
        if rule is None:
            self._stopped = f"records of kind {kind} have no replay rule; {self._records} were performed before"
            self._pes.clear()
            self.messages.clear()
            return None
        result_at = FIRST_FIELD + names.index(RESULT) if RESULT in names else 0
        known = self._rules[kind] = rule.perform, rule.values, result_at
        return known

    def _compare_values(self, pe: _Pe, are: str, told: Values, values: Values | None) -> None:
        """``are``: what the values are, by the rule."""
        wrong = where_wrong(told, values)
        if wrong is None:
            return
        ranges, operands = {READ: (pe.reads, []), WRITTEN: (pe.writes, pe.reads)}.get(are, ([], pe.reads))
        if sum(nbytes for _, nbytes in ranges) != (len(told) if isinstance(told, bytes) else told.nbytes):
            ranges, operands = [], pe.reads + pe.writes
        self.differences.of_values(pe.by, wrong, ranges, operands, pe.reads_message)
        if are == WRITTEN:
            pe.take_over(told if isinstance(told, bytes) else told.tobytes())

    def _arrival(self, arrival: Arrival) -> None:
        address, seq, data = arrival.address, arrival.seq, arrival.data
        if message_crc(address, seq, arrival.direction, data) != arrival.crc:
            self.differences.of_arrival(arrival)
        if self._stopped:
            return
        self.messages[address, seq] = data
        self.memory.write(address, data)
        self.differences.wrote(address, len(data), arrival.now_ps, arrival.now_ps, "a message that arrived", True)

    def _compare(self, memory: MemoryStore) -> None:
        """The memories at the end."""
        ours, theirs = dict(self.memory.pages()), dict(memory.pages())
        for page in sorted(ours.keys() | theirs.keys()):
            expected, got = ours.get(page), theirs.get(page)
            if expected != got:
                zeros = bytes(len(expected or got or b""))
                self.differences.at_end(page, bytes(expected or zeros), bytes(got or zeros))
