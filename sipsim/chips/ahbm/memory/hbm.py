"""HBM controller of a cube, modelled per slice: the channels of a PE's slice behind that PE's port.

A slice has ``channels`` of the stack's 64 bit channels, with two pseudo channels each. Timings and their sources are in
``configs/hbm.yaml``. An access is divided into bursts of 32 B over the pseudo channels.

Accesses share the data buses, which are edges: one edge for all buses of a slice, in both directions, and one per
pseudo channel. All other delays of an access are computed when it begins, from the open rows (:class:`Rows`) and the
accesses in flight.
"""

from collections import deque
from collections.abc import Iterator
from typing import Annotated, Any, ClassVar, Literal

import msgspec
from msgspec import Meta

from sipsim.chips.ahbm.address import MIB, OFFSET_BITS, Block
from sipsim.chips.ahbm.memory.ports import MEMORY_KINDS, AccessTerm, Load, MemoryPort, Ps, Reading, Refusal, Wait
from sipsim.chips.ahbm.memory.presets import BURST_BYTES, PSEUDO_CHANNELS, Preset, presets
from sipsim.config.check import no_power_of_two
from sipsim.config.schema import MemoryCost, NonNegative, Section, TcmCost
from sipsim.core.engine import Engine
from sipsim.core.registry import unknown_name
from sipsim.core.units import PS_PER_S, drain_ps, ns_to_ps
from sipsim.fabric.graph import Node, Route
from sipsim.fabric.transport import NEVER


class BurstRun(msgspec.Struct, frozen=True, gc=False):
    """Run of ``bursts`` bursts from burst number ``first`` of a slice, in one row of the banks with number ``bank``."""

    bank: int
    row: int
    first: int
    bursts: int


class Mapping:
    """Address mapping of a slice of ``channels`` channels, a power of two.

    Address bits select pseudo channel, channel, bank group, bank, column and row. The offset within a PE's slice, from
    the lowest bit:

        burst (5 bits: 32 B) | bank group | pseudo channel (1) | channel | column (row / 32 B) | bank | row

    So a sequential stream alternates between bank groups (tCCD_S, not tCCD_L), then between the pseudo channels of the
    slice, and stays in open rows for ``groups * row_bytes`` per pseudo channel. A *line* is the bursts that differ only
    in bank group and channel. A *stripe* is all lines of a slice with equal bank and row bits: one row of one bank in
    each bank group of each pseudo channel.

    With ``is_hashed`` all bits above a line are XORed, in groups, into the bits of bank group and channel, and the row
    bits into the bank bits: accesses whose distance is a power of two use different channels and banks.
    """

    def __init__(self, preset: Preset, channels: int, is_hashed: bool) -> None:
        self.pseudo_channels = channels * PSEUDO_CHANNELS
        self.groups = preset.groups
        self.line = preset.groups * self.pseudo_channels
        """Number of bursts in a line: one per bank group of each pseudo channel."""
        self._stripe = self.line * (preset.row_bytes // BURST_BYTES)
        self._banks = preset.banks_per_group
        self._is_hashed = is_hashed

    def pieces(self, first: int, end: int) -> Iterator[BurstRun]:
        """Split the bursts from ``first`` to before ``end``: per stripe into whole lines and partial lines."""
        line, stripe = self.line, self._stripe
        while first < end:
            row, bank = divmod(first // stripe, self._banks)
            count = min(end, (first // stripe + 1) * stripe) - first
            if first % line or count < line:
                count = min(count, line - first % line)
            else:
                count -= count % line
            yield BurstRun(bank ^ self._hash(row, self._banks), row, first, count)
            first += count

    def units(self, piece: BurstRun) -> Iterator[tuple[int, int]]:
        """Yield pseudo channel and bank group of each burst of a partial line."""
        number, start = divmod(piece.first, self.line)
        spread = self._hash(number, self.line)
        for unit in range(start, start + piece.bursts):
            yield divmod(unit ^ spread, self.groups)

    def _hash(self, number: int, below: int) -> int:
        """Fold all bits of ``number`` by XOR into a number below ``below``, a power of two; 0 if not hashed."""
        folded = 0
        while number and self._is_hashed:
            number, low = divmod(number, below)
            folded ^= low
        return folded


HBM_CONTROLLER = "hbm_controller"
_OFFSET_MASK = (1 << OFFSET_BITS) - 1
ROWS, TURN, QUEUE = "opening rows", "a turn of the bus", "room in the write queue"


class HbmParams(Section, frozen=True):
    """``params`` of the section; all but ``preset`` are optional, and ``null`` is the preset's value.

    ``channels``: per slice. ``read_latency_ns`` of the section has no effect, so a user's value is refused.
    """

    preset: str
    channels: Annotated[int, Meta(ge=1, le=64)] = 2
    address_hash: Literal["xor", "none"] = "xor"
    refresh: Literal["none", "all_bank"] = "all_bank"
    page_policy: Literal["open", "closed"] | None = None
    front_end_ns: NonNegative | None = None


class Bank:
    """State of a bank, or of all banks with one number while they are equal. ``row``: open row, None if closed.
    ``column_ps``: earliest time of a column command. ``free_ps``: earliest time at which another row is opened.
    """

    __slots__ = ("column_ps", "free_ps", "row")

    def __init__(self, row: int | None = None, column_ps: Ps = 0, free_ps: Ps = 0) -> None:
        self.row = row
        self.column_ps = column_ps
        self.free_ps = free_ps


class Opened(msgspec.Struct, frozen=True, gc=False):
    """Times of an access whose rows are opened. ``first_ps``: its first column command. ``end_ps``: when all data buses
    would be done with the access if it were alone, without the column latency. ``busy_ps``: per pseudo channel, time of
    the data bus for its bursts, or for opening its rows if that is longer.
    """

    first_ps: Ps
    end_ps: Ps
    busy_ps: list[Ps]


class Rows:
    """Banks of a slice and their open rows.

    To open a row takes a precharge, if another row is open (tRP), and an activate, at least tRC after the last activate
    of the bank and after write recovery (tWR); the first column command follows tRCD later. All rows of an access are
    opened when it begins, in each pseudo channel tRRD apart. Each activation takes ``max(tRRD, tFAW / 4)``, and up
    to four overlap with earlier bursts: an access with fewer bursts than its rows need occupies the bus for longer.
    Bursts of one bank group are tCCD_L apart.
    """

    def __init__(self, preset: Preset, mapping: Mapping, is_closed_page: bool) -> None:
        self._timings = timings = preset.timings
        self._mapping = mapping
        self._is_closed_page = is_closed_page
        self._act_ps = max(timings.rrd, -(-timings.faw // 4))
        self._stagger_ps = (preset.groups - 1) * max(timings.rrd - timings.burst, 0)
        self._spare_ps = [timings.faw] * mapping.pseudo_channels
        self._sets = [Bank() for _ in range(preset.banks_per_group)]
        self._single: dict[int, dict[tuple[int, int], Bank]] = {}

    def open(self, now_ps: Ps, block: Block, is_read: bool) -> Opened:
        """Open the rows of an access that begins now, and return its times."""
        mapping, timings = self._mapping, self._timings
        count, groups, burst_ps = mapping.pseudo_channels, mapping.groups, timings.burst
        first_ps, ends = -1, [0] * count
        bursts, in_group, rows = [0] * count, [[0] * groups for _ in range(count)], [0] * count
        for address in block.addresses:
            offset = address & _OFFSET_MASK
            first, end = offset // BURST_BYTES, -(-(offset + block.row_bytes) // BURST_BYTES)
            for piece in mapping.pieces(first, end):
                if not piece.bursts % mapping.line:
                    ready_ps, is_opened = self._ready(self._all(piece.bank), now_ps, piece.row, is_read, 0)
                    ready_ps += self._stagger_ps if is_opened else 0
                    each = piece.bursts // count
                    data_ps = each * burst_ps
                    bursts = [some + each for some in bursts]
                    ends = [(end if end > ready_ps else ready_ps) + data_ps for end in ends]
                    if is_opened:
                        rows = [some + groups for some in rows]
                    first_ps = ready_ps if first_ps < 0 or ready_ps < first_ps else first_ps
                    continue
                for number, group in mapping.units(piece):
                    bank = self._one(piece.bank, number, group)
                    ready_ps, is_opened = self._ready(bank, now_ps, piece.row, is_read, rows[number])
                    bursts[number] += 1
                    in_group[number][group] += 1
                    rows[number] += is_opened
                    ends[number] = (ends[number] if ends[number] > ready_ps else ready_ps) + burst_ps
                    first_ps = ready_ps if first_ps < 0 or ready_ps < first_ps else first_ps
        busy = [0] * count
        for number, some in enumerate(bursts):
            if some:
                data_ps = max(some * burst_ps, (max(in_group[number]) - 1) * timings.ccd_l + burst_ps)
                busy[number] = self._with_rows(number, data_ps, rows[number] * self._act_ps)
        return Opened(first_ps, max(ends), busy)

    def _with_rows(self, number: int, data_ps: Ps, rows_ps: Ps) -> Ps:
        """Return how long an access keeps the bus of pseudo channel ``number`` busy: ``data_ps`` for its data, or
        longer if its rows, which take ``rows_ps`` to open, cannot all be opened during earlier data.
        """
        spare_ps, most_ps = self._spare_ps[number], self._timings.faw
        busy_ps = data_ps if data_ps > rows_ps - spare_ps else rows_ps - spare_ps
        left_ps = spare_ps + busy_ps - rows_ps
        self._spare_ps[number] = left_ps if left_ps < most_ps else most_ps
        return busy_ps

    def _ready(self, bank: Bank, now_ps: Ps, row: int, is_read: bool, before: int) -> tuple[Ps, bool]:
        """Return the time of the first column command to a row, and whether the row has to be opened. ``before``:
        number of rows that the access opens earlier.
        """
        timings = self._timings
        if bank.row == row:
            return max(bank.column_ps, now_ps), False
        act_ps = max(now_ps + (0 if bank.row is None else timings.rp) + before * timings.rrd, bank.free_ps)
        bank.row = None if self._is_closed_page else row
        bank.column_ps = act_ps + (timings.rcd_read if is_read else timings.rcd_write)
        bank.free_ps = act_ps + timings.rc
        if not is_read:
            written_ps = bank.column_ps + timings.cwl + timings.burst
            bank.free_ps = max(bank.free_ps, written_ps + timings.wr + timings.rp)
        return bank.column_ps, True

    def _all(self, number: int) -> Bank:
        """Return the joint state of all banks with one number: the latest times, and the open row or ``_MIXED``."""
        banks, single = self._sets[number], self._single.pop(number, None)
        if single:
            every = [*single.values(), *([banks] if len(single) < self._mapping.line else [])]
            rows = {bank.row for bank in every}
            banks.row = rows.pop() if len(rows) == 1 else _MIXED
            banks.column_ps = max(bank.column_ps for bank in every)
            banks.free_ps = max(bank.free_ps for bank in every)
        return banks

    def _one(self, number: int, channel: int, group: int) -> Bank:
        single = self._single.setdefault(number, {})
        banks = self._sets[number]
        return single.get((channel, group)) or single.setdefault(
            (channel, group), Bank(banks.row, banks.column_ps, banks.free_ps)
        )


_MIXED = -1
"""Row of banks with one number that do not all have the same row open."""


class _UnderWay:
    """Access in flight until ``until_ps``. ``bus_ps``: its data-bus time that has not counted for a turnaround yet."""

    __slots__ = ("bus_ps", "until_ps")

    def __init__(self, until_ps: Ps, bus_ps: Ps = 0) -> None:
        self.until_ps = until_ps
        self.bus_ps = bus_ps


@MEMORY_KINDS.register(HBM_CONTROLLER)
class HbmController(MemoryPort):
    """HBM channels of a slice.

    * **Edges**: one for the data buses of all pseudo channels together, which reads and writes share; an access that
      does not use all pseudo channels also takes one edge per pseudo channel that it uses. Their rate is a burst's,
      reduced by refresh: in each ``tREFI`` no data move for ``tRP + tRFC``.
    * **Read**: the first byte leaves ``front_end + tCL`` after the first column command, the last byte when all rows
      have been opened and read. The front end is a fixed path, specified separately from the DRAM.
    * **Write**: posted. A write ends ``write_latency_ns`` of the section after its last byte is in the write queue,
      which is at once unless the queue is full of writes whose banks are busy.
    * **Turnaround**: concurrent reads and writes cost one bus turnaround to writes and one back per half of the write
      queue. The later access pays, as extra bytes; a read also waits for its turnaround.

    The waits of reads for rows and of writes for the queue are recorded. The cost of an access in host time grows with
    the number of rows that it touches.

    Limits: an access opens its rows as if it were alone, after earlier accesses to the bank, one row cycle each; a
    write does so when it enters its train. Writes end in order of arrival, so a write that waits for the queue delays
    all later writes. A read is not served from the write queue. Accesses to all pseudo channels never wait for a single
    one. Refresh has no phase; refresh management, per-bank refresh, ECC, power states and temperature are not modelled.
    """

    Params = HbmParams
    is_constant = False
    bandwidth_key = "params.preset"
    unused: ClassVar[dict[str, str]] = {"read_latency_ns": "params.front_end_ns"}

    def __init__(self, cost: MemoryCost | TcmCost, engine: Engine, node: Node) -> None:
        super().__init__(cost, engine, node)
        params: HbmParams = self.params
        preset = presets()[params.preset]
        self._timings = timings = preset.timings
        mapping = Mapping(preset, params.channels, params.address_hash == "xor")
        self._front_ps = ns_to_ps(preset.front_end_ns if params.front_end_ns is None else params.front_end_ns)
        is_closed = (params.page_policy or preset.page_policy) == "closed"
        self._row_ps = timings.rcd_read if is_closed else 0
        self._rows = Rows(preset, mapping, is_closed)
        self._queue_bursts = preset.queue_bursts
        open_ps = timings.refi - (timings.rp + timings.rfc if params.refresh == "all_bank" else 0)
        bus_bps = BURST_BYTES * PS_PER_S * open_ps // (timings.burst * timings.refi)
        self._line, self._groups = mapping.line, mapping.groups
        self._names = [f"pseudo channel {number}" for number in range(mapping.pseudo_channels)]
        self.bandwidths = {"data buses": mapping.pseudo_channels * bus_bps, **dict.fromkeys(self._names, bus_bps)}
        self.least_read_ps = self._front_ps + self._row_ps + timings.cl
        to_write_ps = max(timings.rtw + timings.cwl - timings.cl - timings.burst, 0)
        self._to_read_ps = timings.wtr + timings.cl
        self._turns_ps = to_write_ps + self._to_read_ps
        self._batch_ps = preset.queue_bursts // 2 * timings.burst
        self._under_way: tuple[deque[_UnderWay], deque[_UnderWay]] = (deque(), deque())
        self._free_ps: Ps = 0
        self._queues: list[deque[tuple[Ps, int]]] = [deque() for _ in self._names]
        self._coming: dict[Block, deque[tuple[_UnderWay, Ps]]] = {}
        self._written_ps: Ps = 0

    @classmethod
    def refusal(cls, params: Any, capacity_bytes: int) -> Refusal | None:
        preset = presets().get(params.preset)
        if preset is None:
            return Refusal("preset", unknown_name("HBM preset", params.preset, presets()))
        if what := no_power_of_two(params.channels):
            return Refusal("channels", f"{what}: address bits select the channel")
        channels_MiB = params.channels * preset.channel_MiB
        if capacity_bytes > channels_MiB * MIB:
            slice_MiB = capacity_bytes // MIB
            what = f"channels of {params.preset} hold {channels_MiB} MiB, and a PE's slice has {slice_MiB} MiB"
            key = ("cube", "hbm_MiB_per_pe")
            return Refusal("channels", f"{what}; raise channels, or lower cube.hbm_MiB_per_pe", (key,))
        return None

    def read_terms(self) -> tuple[AccessTerm, ...]:
        front = AccessTerm("controller, front end of reads", "params.front_end_ns", self._front_ps)
        device = AccessTerm("read access", "params.preset", self._row_ps + self._timings.cl)
        return (front, device)

    def read_span_ps(self, nbytes: int) -> Ps:
        """Return the data-bus time of a read that starts at a line and whose rows are open."""
        bursts = -(-nbytes // BURST_BYTES)
        if bursts > self._line - self._groups:
            return drain_ps(bursts * BURST_BYTES, self.bandwidths["data buses"])
        return drain_ps(min(bursts, self._groups) * BURST_BYTES, self.bandwidths[self._names[0]])

    def write_span_ps(self, nbytes: int, address: int = 0) -> Ps:
        return self.read_span_ps(nbytes)

    def copy_span_ps(self, src: int, dst: int, nbytes: int) -> Ps:
        return 2 * self.read_span_ps(nbytes)

    def reading(self, block: Block, route: Route | None = None) -> Reading:
        now_ps, opened = self.engine.now_ps, self._rows.open(self.engine.now_ps, block, True)
        span_ps = opened.end_ps - opened.first_ps
        first_ps = self._front_ps + opened.first_ps - now_ps + self._timings.cl
        under_way = _UnderWay(now_ps + first_ps + span_ps)
        loads = self._loads(opened.busy_ps, True, under_way)
        turn_ps = self._to_read_ps if under_way.bus_ps < sum(opened.busy_ps) else 0
        if self.waits is not None:
            late_ps = max(span_ps, *opened.busy_ps) - self.read_span_ps(block.nbytes)
            rows_ps = first_ps - self.least_read_ps + max(late_ps, 0)
            self._note(True, block, now_ps + first_ps + turn_ps + span_ps, (ROWS, rows_ps), (TURN, turn_ps))
        return Reading(self._over(route or self.here, loads, True), first_ps + turn_ps, span_ps)

    def writing(self, block: Block, route: Route | None = None) -> Route:
        route, now_ps = route or self.here, self.engine.now_ps
        opened = self._rows.open(now_ps, block, False)
        under_way, room_ps = _UnderWay(NEVER), 0
        loads = self._loads(opened.busy_ps, False, under_way)
        if opened.end_ps - now_ps > max(opened.busy_ps) + self._timings.rp + self._timings.rcd_write:
            room_ps = self._queue_up(block, opened)
        self._coming.setdefault(block, deque()).append((under_way, room_ps))
        return self._over(route, loads, False)

    def written_ps(self, block: Block) -> Ps:
        now_ps, coming = self.engine.now_ps, self._coming[block]
        under_way, room_ps = coming.popleft()
        if not coming:
            del self._coming[block]
        under_way.until_ps, wait_ps = now_ps, max(room_ps - now_ps, 0)
        self._written_ps = max(self._written_ps, now_ps + wait_ps + self.least_write_ps)
        if self.waits is not None:
            queue_ps = self._written_ps - now_ps - self.least_write_ps
            self._note(False, block, self._written_ps, (QUEUE, queue_ps))
        return self._written_ps - now_ps

    def _loads(self, busy_ps: list[Ps], is_read: bool, under_way: "_UnderWay") -> tuple[Load, ...]:
        """Return the loads of an access on the data buses, including turnarounds after accesses in the other direction.

        Each byte counts for one turnaround only; ``under_way`` gets the bus time left for later accesses. A read
        is in flight until all earlier accesses could be done, a write until its last byte has arrived.
        """
        now_ps, total_ps = self.engine.now_ps, sum(busy_ps)
        own, others = self._under_way[is_read], self._under_way[not is_read]
        left_ps = total_ps
        while own and own[0].until_ps <= now_ps:
            own.popleft()
        while others and left_ps:
            met_ps = min(others[0].bus_ps, left_ps) if others[0].until_ps > now_ps else 0
            left_ps -= met_ps
            others[0].bus_ps -= met_ps
            if not met_ps or not others[0].bus_ps:
                others.popleft()
        turns_ps = (total_ps - left_ps) * self._turns_ps // self._batch_ps
        taken_ps = total_ps + turns_ps
        self._free_ps = max(self._free_ps, now_ps) + taken_ps // len(busy_ps)
        under_way.until_ps, under_way.bus_ps = max(under_way.until_ps, self._free_ps), left_ps
        if left_ps:
            own.append(under_way)
        loads: tuple[Load, ...] = (("data buses", self._bytes(taken_ps)),)
        if not all(busy_ps):
            met = ((name, ps * taken_ps // total_ps) for name, ps in zip(self._names, busy_ps, strict=True) if ps)
            loads = (*loads, *((name, self._bytes(ps)) for name, ps in met))
        return loads

    def _bytes(self, bus_ps: Ps) -> int:
        """Return the bytes that a data bus carries in ``bus_ps``, rounded up to whole bursts."""
        return -(-bus_ps // self._timings.burst) * BURST_BYTES

    def _queue_up(self, block: Block, opened: Opened) -> Ps:
        """Queue a write until its banks are free; return the time (ps) at which its pseudo channel's queue has
        space for the write, 0 if it has space now.
        """
        busy_ps, now_ps = opened.busy_ps, self.engine.now_ps
        queue = self._queues[busy_ps.index(max(busy_ps))]
        bursts = min(-(-block.nbytes // (BURST_BYTES * sum(ps > 0 for ps in busy_ps))), self._queue_bursts)
        while queue and queue[0][0] <= now_ps:
            queue.popleft()
        queued = sum(n_bursts for _, n_bursts in queue)
        queue.append((opened.end_ps - max(busy_ps), bursts))
        room_ps = 0
        for until_ps, n_bursts in queue:
            if queued + bursts <= self._queue_bursts:
                break
            queued -= n_bursts
            room_ps = until_ps
        return room_ps

    def _note(self, is_read: bool, block: Block, end_ps: Ps, *parts: tuple[str, Ps]) -> None:
        """Record the waits of an access beyond its terms: ``parts`` are (reason, ps)."""
        some = tuple(part for part in parts if part[1] > 0)
        if some and self.waits is not None:
            now_ps = self.engine.now_ps
            self.waits.append(Wait(str(self.node), is_read, block.address, block.nbytes, now_ps, end_ps, some))
