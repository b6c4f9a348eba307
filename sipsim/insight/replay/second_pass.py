"""Performs the records of one SIP again, and compares.

Values that differ are taken over from the first pass, so that each record is judged by itself. So are messages: that
they are what was sent, is compared where both ends are known (:mod:`.checksums`).
"""

from collections import deque

import numpy as np

from sipsim.chips.ahbm.memory.store import MemoryStore
from sipsim.insight.replay.checksums import Checksums, Sums, is_later
from sipsim.insight.replay.differences import Differences, Numbered, Range, are_same, where_wrong
from sipsim.records.oplog import FIELDS
from sipsim.records.replay import (
    READ,
    WRITTEN,
    Array,
    Arrival,
    Gone,
    Item,
    QueueCheck,
    Rule,
    ToldRecord,
    Values,
    Verdict,
    WrongRecord,
    rule_of,
)

Place = tuple[int, int, int]
RESULT = "result"
"""The field of a kind that names the handle with the values of its record."""
CUBE, FIRST_FIELD = 3, 5
"""Where a record has its cube and PE, and the fields of its kind."""


class _Pe:
    """See :class:`~sipsim.records.replay.ReplayPe`. ``item``: the present record, number ``number``, and
    ``reads`` and ``writes`` its ranges.
    """

    def __init__(self, second_pass: "SecondPass", place: Place) -> None:
        self._pass = second_pass
        self._memory = second_pass.memory
        self.place = place
        self.values: dict[str, tuple[Array, Gone | None]] = {}
        self.item: ToldRecord = (), None, None, None
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
            record, *_, taken_ps = self.item
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

    def send(self, dst: str, address: int, seq: int, direction: str, data: bytes) -> None:
        told = self.item[1]
        self._pass.note_sent(self.place, direction, dst, (address, seq), told if isinstance(told, bytes) else data)

    def message(self, address: int, seq: int, nbytes: int) -> bytes:
        self.reads.append((address, nbytes))
        self.reads_message = True
        data = self._pass.messages.pop((address, seq), None)
        if data is None:
            raise WrongRecord(f"message {seq} has not arrived in the slot at {address:#x}")
        return data


class SecondPass:
    """Of SIP ``sip``, on ``memory``, which is empty at first. ``messages``: those in slots, by address and number."""

    def __init__(self, sip: int, memory: MemoryStore) -> None:
        self.sip = sip
        self.memory = memory
        self.differences = Differences(memory.canonical)
        self.messages: dict[tuple[int, int], bytes] = {}
        self._rules: dict[str, tuple[Rule, str, int]] = {}
        self._pes: dict[tuple[int, int], _Pe] = {}
        self._on_the_way: dict[tuple[int, int, str], bytes] = {}
        self._sent: dict[tuple[Place, str, str], Checksums] = {}
        self._arrived: dict[tuple[Place, str, str], Checksums] = {}
        self._sums_sent, self._sums_arrived = Sums(), Sums()
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
            elif type(item) is int:
                self._close(item)

    def host_wrote(self, address: int, data: bytes | memoryview, now_ps: int) -> None:
        """The host writes to a memory."""
        self.memory.write(address, data)
        self.differences.wrote(address, len(data), now_ps, now_ps, "the host")

    def host_cleared(self, address: int, nbytes: int, now_ps: int) -> None:
        """The host sets bytes to zero."""
        self.memory.clear(address, nbytes)
        self.differences.wrote(address, nbytes, now_ps, now_ps, "the host")

    def note_sent(self, sender: Place, direction: str, dst: str, slot: tuple[int, int], data: bytes) -> None:
        """A message leaves for a slot, (address, number), of PE ``dst``.

        Its direction tells it from one to the same slot by another generation of queue pairs.
        """
        if int(dst.partition(".")[0]) == self.sip:
            self._on_the_way[*slot, direction] = data
        else:
            _of(self._sent, sender, direction, dst).add(*slot, data)

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
            sent=(*_checks(self._sent), *self._sums(self._sent, self._sums_sent).told()),
            arrived=(*_checks(self._arrived), *self._sums(self._arrived, self._sums_arrived).told()),
        )

    def _close(self, generation: int) -> None:
        """Keep only the sums of a generation of queue pairs that has sent and taken all its messages."""
        end = f"#{generation}"
        for queues, sums in ((self._sent, self._sums_sent), (self._arrived, self._sums_arrived)):
            for sender, direction, peer in [key for key in queues if key[1].endswith(end)]:
                sums.add(sender, self._receiver(peer), direction, queues.pop((sender, direction, peer)))

    def _sums(self, queues: dict[tuple[Place, str, str], Checksums], closed: Sums) -> Sums:
        """Of all later queue pairs, closed or not."""
        sums = closed.copy()
        for (sender, direction, peer), messages in queues.items():
            if is_later(direction):
                sums.add(sender, self._receiver(peer), direction, messages)
        return sums

    def _receiver(self, peer: str) -> int:
        """The rank of the PE that receives, as the sender names it; of messages that arrived it is this SIP's."""
        return int(peer.partition(".")[0]) if peer else self.sip

    def _record(self, item: ToldRecord) -> None:
        record, told, gone, _taken_ps = item
        if self._stopped:
            return
        known = self._rules.get(record[0]) or self._find_rule(record[0])
        if known is None:
            return
        perform, are, result_at = known
        place = record[CUBE:FIRST_FIELD]
        pe = self._pes.get(place)
        if pe is None:
            pe = self._pes[place] = _Pe(self, (self.sip, *place))
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
            self._on_the_way.clear()
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
        address, seq, sender, data = arrival.address, arrival.seq, arrival.sender, arrival.data
        if sender[0] != self.sip:
            _of(self._arrived, sender, arrival.direction, "").add(address, seq, data)
        if self._stopped:
            return
        if sender[0] == self.sip:
            sent = self._on_the_way.pop((address, seq, arrival.direction), None)
            if sent is not data and sent != data:
                self._note_changed(arrival, sent)
        self.messages[address, seq] = data
        self.memory.write(address, data)
        self.differences.wrote(address, len(data), arrival.now_ps, arrival.now_ps, "a message that arrived", True)

    def _note_changed(self, arrival: Arrival, sent: bytes | None) -> None:
        """A message within the SIP has arrived with other bytes."""
        wrong = where_wrong(arrival.data, sent)
        what = "it was not sent" if wrong is None or sent is None else wrong.text
        _, cube, pe = arrival.sender
        text = f"message {arrival.seq} {arrival.direction} of cube {cube} PE {pe} was changed on its way"
        self.differences.of_record(None, f"{text} to the slot at {arrival.address:#x}: {what}")

    def _compare(self, memory: MemoryStore) -> None:
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
