"""Performs the records of one SIP again, and compares.

Values that differ are taken over from the first pass, so that each record is judged by itself. So are messages: that
they are what was sent, is compared where both ends are known (:mod:`.checksums`).
"""

from collections import deque
from collections.abc import Iterator
from typing import Protocol

import numpy as np

from sipsim.record.oplog import FIELDS
from sipsim.record.replay.checksums import Checksums
from sipsim.record.replay.comparison import are_same, where_wrong
from sipsim.record.replay.differences import Differences, Numbered, Range
from sipsim.record.replay.feed import Arrival, Gone, Item, ToldRecord
from sipsim.record.replay.rules import READ, WRITTEN, Array, KnownRule, Values, WrongRecord, rule_of
from sipsim.record.replay.verdict import QueueCheck, Verdict

Place = tuple[int, int, int]
RESULT = "result"
"""The field of a kind that names the handle with the values of its record."""


class Memory(Protocol):
    """The bytes of a SIP's memories, by physical addresses. ``canonical``: one address of each byte. ``pages``: those
    that were written to, by canonical addresses.
    """

    def read(self, address: int, nbytes: int) -> bytes: ...

    def write(self, address: int, data: bytes | memoryview) -> None: ...

    def clear(self, address: int, nbytes: int) -> None: ...

    def canonical(self, address: int) -> int: ...

    def pages(self) -> Iterator[tuple[int, bytearray]]: ...


class _Pe:
    """See :class:`~sipsim.record.replay.rules.ReplayPe`. ``reads`` and ``writes``: ranges of the present record."""

    def __init__(self, second_pass: "SecondPass", place: Place) -> None:
        self._pass = second_pass
        self._memory = second_pass.memory
        self.place = place
        self.values: dict[str, tuple[Array, Gone | None]] = {}
        self.told: Values | None = None
        self.by = Numbered(0, (), 0)
        self.reads: list[Range] = []
        self.writes: list[Range] = []
        self.reads_message = False

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
        self._pass.differences.wrote(address, len(data), self.by.start_ps, self.by.record[2], self.by)

    def take_over(self, data: bytes) -> None:
        """Have the memory as the first pass has left it, by the same writes."""
        at = 0
        for address, nbytes in self.writes:
            self._memory.write(address, data[at : at + nbytes])
            at += nbytes

    def send(self, dst: str, address: int, seq: int, direction: str, data: bytes) -> None:
        sent = self.told if isinstance(self.told, bytes) else data
        self._pass.note_sent(self.place, direction, dst, (address, seq), sent)

    def message(self, address: int, seq: int, nbytes: int) -> bytes:
        self.reads.append((address, nbytes))
        self.reads_message = True
        data = self._pass.messages.pop((address, seq), None)
        if data is None:
            raise WrongRecord(f"message {seq} has not arrived in the slot at {address:#x}")
        return data


class SecondPass:
    """Of SIP ``sip``, on ``memory``, which is empty at first. ``messages``: those in slots, by address and number."""

    def __init__(self, sip: int, memory: Memory) -> None:
        self.sip = sip
        self.memory = memory
        self.differences = Differences(memory.canonical)
        self.messages: dict[tuple[int, int], bytes] = {}
        self._rules: dict[str, tuple[KnownRule, int | None]] = {}
        self._pes: dict[tuple[int, int], _Pe] = {}
        self._on_the_way: dict[tuple[int, int], bytes] = {}
        self._sent: dict[tuple[Place, str, str], Checksums] = {}
        self._arrived: dict[tuple[Place, str, str], Checksums] = {}
        self._records = 0
        self._stopped = ""

    def perform(self, items: deque[Item]) -> None:
        """Take all items, which leave the queue."""
        while items:
            item = items.popleft()
            if type(item) is ToldRecord:
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

    def note_sent(self, sender: Place, direction: str, dst: str, slot: tuple[int, int], data: bytes) -> None:
        """A message leaves for a slot, (address, number), of PE ``dst``."""
        if int(dst.partition(".")[0]) == self.sip:
            self._on_the_way[slot] = data
        else:
            _of(self._sent, sender, direction, dst).add(*slot, data)

    def verdict(self, memory: Memory) -> Verdict:
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
            sent=_checks(self._sent),
            arrived=_checks(self._arrived),
        )

    def _record(self, item: ToldRecord) -> None:
        record, told, gone, taken_ps = item
        if self._stopped:
            return
        kind, start_ps, _end, cube, number, *fields = record
        pe = self._pes.get((cube, number))
        if pe is None:
            pe = self._pes[cube, number] = _Pe(self, (self.sip, cube, number))
        known = self._rules.get(kind) or self._find_rule(kind)
        if known is None:
            return
        rule, result_at = known
        self._records += 1
        pe.told, pe.by = told, Numbered(self._records, record, start_ps if taken_ps is None else taken_ps)
        if pe.reads or pe.writes:
            pe.reads, pe.writes, pe.reads_message = [], [], False
        try:
            values = rule.perform(pe, *fields)
        except MemoryError:
            raise
        except Exception as error:
            text = str(error) if isinstance(error, WrongRecord) else f"its rule fails: {type(error).__name__}: {error}"
            self.differences.of_record(pe.by, text)
            values = told
        else:
            if told is not None and not are_same(told, values):
                self._compare_values(pe, rule.values, told, values)
                values = told
        if gone is not None and isinstance(values, np.ndarray):
            if result_at is not None and fields[result_at] != gone.name:
                self.differences.of_record(pe.by, f"its values are those of {gone.name}")
            gone.values = pe.values
            pe.values[gone.name] = values, gone
        elif result_at is not None and isinstance(values, np.ndarray):
            # The first pass told nothing of it, and not when it is gone.
            pe.values[str(fields[result_at])] = values, None

    def _find_rule(self, kind: str) -> tuple[KnownRule, int | None] | None:
        """The rule of a kind, and the place of ``result`` among its fields, if it has one."""
        rule, names = rule_of(kind), FIELDS[kind]
        if rule is None:
            self._stopped = f"records of kind {kind} have no replay rule; {self._records} were performed before"
            self._pes.clear()
            self.messages.clear()
            self._on_the_way.clear()
            return None
        known = self._rules[kind] = rule, names.index(RESULT) if RESULT in names else None
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
        now_ps, address, seq, sender, direction, data = arrival
        if sender[0] != self.sip:
            _of(self._arrived, sender, direction, "").add(address, seq, data)
        if self._stopped:
            return
        if sender[0] == self.sip:
            sent = self._on_the_way.pop((address, seq), None)
            if sent is not data and sent != data:
                self._note_changed(arrival, sent)
        self.messages[address, seq] = data
        self.memory.write(address, data)
        self.differences.wrote(address, len(data), now_ps, now_ps, "a message that arrived", True)

    def _note_changed(self, arrival: Arrival, sent: bytes | None) -> None:
        """A message within the SIP has arrived with other bytes."""
        wrong = where_wrong(arrival.data, sent)
        what = "it was not sent" if wrong is None or sent is None else wrong.text
        _, cube, pe = arrival.sender
        text = f"message {arrival.seq} {arrival.direction} of cube {cube} PE {pe} was changed on its way"
        self.differences.of_record(None, f"{text} to the slot at {arrival.address:#x}: {what}")

    def _compare(self, memory: Memory) -> None:
        """The memories at the end."""
        ours, theirs = dict(self.memory.pages()), dict(memory.pages())
        for page in sorted(ours.keys() | theirs.keys()):
            expected, got = ours.get(page), theirs.get(page)
            if expected != got:
                zeros = bytes(len(expected or got or b""))
                self.differences.at_end(page, bytes(expected or zeros), bytes(got or zeros))


def _of(queues: dict[tuple[Place, str, str], Checksums], sender: Place, direction: str, peer: str) -> Checksums:
    found = queues.get((sender, direction, peer))
    if found is None:
        found = queues[sender, direction, peer] = Checksums()
    return found


def _checks(queues: dict[tuple[Place, str, str], Checksums]) -> tuple[QueueCheck, ...]:
    return tuple(queues[key].told(*key) for key in sorted(queues))
