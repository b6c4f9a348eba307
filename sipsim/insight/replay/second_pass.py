"""Performs the records of one SIP again, and compares the values with the first pass.

If values differ, the second pass continues with the values of the first pass, so that one error is reported once.
Messages are always taken from the first pass. A message carries a CRC of the sent data: the sender's second pass
compares it with the record of the send, the receiver's second pass with the data that arrived.
"""

from collections import deque

import numpy as np

from sipsim.insight.replay.differences import Differences, Numbered, Range, are_same, where_wrong
from sipsim.records.oplog import FIELDS
from sipsim.records.replay import (
    READ,
    WRITTEN,
    Array,
    Arrival,
    FeedRecord,
    FirstMemory,
    FreedHandle,
    Item,
    ReplayMemory,
    Rule,
    Values,
    Verdict,
    WrongRecord,
    message_crc,
    rule_of,
)

RESULT = "result"
"""The name of the field with the handle that receives the values of the record."""
CUBE, FIRST_FIELD = 3, 5
"""Indices in a record: of the cube, which the PE follows, and of the first field of the record's kind."""


class _Pe:
    """The state of one PE (:class:`~sipsim.records.replay.ReplayPe`). ``item``: the current record; ``number``:
    its number, from 1; ``reads``, ``writes``: the ranges that the rule of the record has accessed.
    """

    def __init__(self, second_pass: "SecondPass") -> None:
        self._pass = second_pass
        self._memory = second_pass.memory
        self.values: dict[str, tuple[Array, FreedHandle | None]] = {}
        self.item: FeedRecord = (), None, None, None, 0
        self.number = 0
        self.reads: list[Range] = []
        self.writes: list[Range] = []
        self.reads_message = False
        self._by: Numbered | None = None

    @property
    def recorded(self) -> Values | None:
        return self.item[1]

    @property
    def by(self) -> Numbered:
        """The current record."""
        if self._by is None or self._by.number != self.number:
            record, _, _, taken_ps, _ = self.item
            self._by = Numbered(self.number, record, record[1] if taken_ps is None else taken_ps)
        return self._by

    def value(self, name: str) -> Array:
        try:
            return self.values[name][0]
        except KeyError:
            raise WrongRecord(f"no record has filled handle {name} of this PE, or the handle has been freed") from None

    def read(self, address: int, nbytes: int) -> bytes:
        self.reads.append((address, nbytes))
        return self._memory.read(address, nbytes)

    def write(self, address: int, data: bytes) -> None:
        self.writes.append((address, len(data)))
        self._memory.write(address, data)
        by = self.by
        self._pass.differences.wrote(address, len(data), by.start_ps, by.record[2], by)

    def take_over(self, data: bytes) -> None:
        """Overwrite the ranges that the record wrote with the first pass's bytes."""
        offset = 0
        for address, nbytes in self.writes:
            self._memory.write(address, data[offset : offset + nbytes])
            offset += nbytes

    def send(self, address: int, seq: int, direction: str, data: bytes) -> None:
        _, recorded, _, _, crc = self.item
        if message_crc(address, seq, direction, recorded if isinstance(recorded, bytes) else data) != crc:
            raise WrongRecord("the message that was sent has another number, direction or slot")

    def message(self, address: int, seq: int, nbytes: int) -> bytes:
        self.reads.append((address, nbytes))
        self.reads_message = True
        data = self._pass.messages.pop((address, seq), None)
        if data is None:
            raise WrongRecord(f"message {seq} has not arrived in the slot at {self._memory.address_text(address)}")
        return data


class SecondPass:
    """The second pass of one SIP. ``memory``: empty at first. ``messages``: data that arrived, by (address, number)."""

    def __init__(self, memory: ReplayMemory) -> None:
        self.memory = memory
        self.differences = Differences(memory)
        self.messages: dict[tuple[int, int], bytes] = {}
        self._rules: dict[str, tuple[Rule, str, int]] = {}
        self._pes: dict[tuple[int, int], _Pe] = {}
        self._records = 0
        self._stopped = ""

    def perform(self, items: deque[Item]) -> None:
        """Process all items and remove them from the queue."""
        while items:
            item = items.popleft()
            if type(item) is tuple:
                self._record(item)
            elif type(item) is FreedHandle:
                if item.values is not None:
                    item.values.pop(item.name, None)
            elif type(item) is Arrival:
                self._arrival(item)

    def host_wrote(self, address: int, data: bytes | memoryview, now_ps: int) -> None:
        """Perform a write of the host to a memory."""
        self.memory.write(address, data)
        self.differences.wrote(address, len(data), now_ps, now_ps, "the host")

    def host_cleared(self, address: int, nbytes: int, now_ps: int) -> None:
        """Set bytes of a memory to zero, as the host does."""
        self.memory.clear(address, nbytes)
        self.differences.wrote(address, nbytes, now_ps, now_ps, "the host")

    def verdict(self, memory: FirstMemory) -> Verdict:
        """Return the result after the last record; ``memory`` is the memory of the first pass."""
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

    def _record(self, item: FeedRecord) -> None:
        record, recorded, freed, *_ = item
        if self._stopped:
            return
        entry = self._rules.get(record[0]) or self._find_rule(record[0])
        if entry is None:
            return
        perform, origin, result_at = entry
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
            text = str(error) if isinstance(error, WrongRecord) else f"the rule fails: {type(error).__name__}: {error}"
            self.differences.of_record(pe.by, text)
            values = recorded
        else:
            if recorded is not None and not are_same(recorded, values):
                self._compare_values(pe, origin, recorded, values)
                values = recorded
        if freed is not None and isinstance(values, np.ndarray):
            if result_at and record[result_at] != freed.name:
                self.differences.of_record(pe.by, f"the values are of handle {freed.name}, not of the result")
            freed.values = pe.values
            pe.values[freed.name] = values, freed
        elif result_at and isinstance(values, np.ndarray):
            # The feed has no values of this handle, and does not notify when it is freed.
            pe.values[str(record[result_at])] = values, None

    def _find_rule(self, kind: str) -> tuple[Rule, str, int] | None:
        """Return the rule of a kind, the origin of its values, and the index of ``result`` in records; 0 if none."""
        rule, names = rule_of(kind), FIELDS[kind]
        if rule is None:
            self._stopped = f"records of kind {kind} have no replay rule; {self._records} records were compared before"
            self._pes.clear()
            self.messages.clear()
            return None
        result_at = FIRST_FIELD + names.index(RESULT) if RESULT in names else 0
        entry = self._rules[kind] = rule.perform, rule.values, result_at
        return entry

    def _compare_values(self, pe: _Pe, origin: str, recorded: Values, values: Values | None) -> None:
        """Add the difference of a record's values, if any. ``origin``: the origin that the rule declares."""
        wrong = where_wrong(recorded, values)
        if wrong is None:
            return
        ranges, operands = {READ: (pe.reads, []), WRITTEN: (pe.writes, pe.reads)}.get(origin, ([], pe.reads))
        if sum(nbytes for _, nbytes in ranges) != (len(recorded) if isinstance(recorded, bytes) else recorded.nbytes):
            ranges, operands = [], pe.reads + pe.writes
        self.differences.of_values(pe.by, wrong, ranges, operands, pe.reads_message)
        if origin == WRITTEN:
            pe.take_over(recorded if isinstance(recorded, bytes) else recorded.tobytes())

    def _arrival(self, arrival: Arrival) -> None:
        address, seq, data = arrival.address, arrival.seq, arrival.data
        if message_crc(address, seq, arrival.direction, data) != arrival.crc:
            self.differences.of_arrival(arrival)
        if self._stopped:
            return
        self.messages[address, seq] = data
        self.memory.write(address, data)
        self.differences.wrote(address, len(data), arrival.now_ps, arrival.now_ps, "a message that arrived", True)

    def _compare(self, memory: FirstMemory) -> None:
        """Compare the memories of both passes at the end of the run."""
        ours, theirs = dict(self.memory.pages()), dict(memory.pages())
        for page in sorted(ours.keys() | theirs.keys()):
            expected, got = ours.get(page), theirs.get(page)
            if expected != got:
                zeros = bytes(len(expected or got or b""))
                self.differences.at_end(page, bytes(expected or zeros), bytes(got or zeros))
