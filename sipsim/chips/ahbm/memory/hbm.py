"""The HBM controller of a cube, as the union of its slices: the channels of a PE's slice behind that PE's port.

A slice has ``channels`` of the stack's 64 bit channels, with two pseudo channels each. Timings and their sources are in
``configs/hbm.yaml``; banks, bus and refresh in :mod:`~sipsim.chips.ahbm.memory.pseudo_channel`. An access is divided
into bursts of 32 B over the pseudo channels.
"""

from collections.abc import Iterator
from copy import deepcopy
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

from msgspec import Meta

from sipsim.chips.ahbm.address import MIB, OFFSET_BITS
from sipsim.chips.ahbm.memory.ports import MEMORY_KINDS, AccessTerm, BusWitness, Ps, Refusal, StreamingPort
from sipsim.chips.ahbm.memory.presets import BURST_BYTES, PSEUDO_CHANNELS, Preset, presets
from sipsim.chips.ahbm.memory.pseudo_channel import Placed, PseudoChannel
from sipsim.chips.ahbm.memory.store import MemoryStore
from sipsim.config.document import no_power_of_two
from sipsim.config.schema import MemoryCost, NonNegative, Section, TcmCost
from sipsim.core.engine import Engine
from sipsim.core.registry import unknown_name
from sipsim.core.units import ns_to_ps


class Piece(NamedTuple):
    """The bursts of an access in one stripe, numbered from its start: ``first`` to ``end``, which is not in it."""

    bank: int
    row: int
    first: int
    end: int


class Mapping:
    """The mapping of a slice of ``channels``, a power of two, of a device: which burst is where.

    Address bits choose pseudo channel, channel, bank group, bank, column and row. The offset within a PE's slice, from
    the lowest bit:

        burst (5 bits: 32 B) | bank group | pseudo channel (1) | channel | column (row / 32 B) | bank | row

    So a sequential stream takes turns between bank groups (tCCD_S, not tCCD_L), then between the pseudo channels of the
    slice, and stays in open rows for ``groups * row_bytes`` a pseudo channel. All bursts of a slice with equal bank and
    row bits are a *stripe*: a row of one bank in each bank group of each pseudo channel.
    """

    def __init__(self, preset: Preset, channels: int) -> None:
        self.pseudo_channels = channels * PSEUDO_CHANNELS
        self.groups = preset.groups
        self.line = preset.groups * self.pseudo_channels
        """Bursts after which the same bank is next."""
        self._stripe = self.line * (preset.row_bytes // BURST_BYTES)
        self._banks = preset.banks_per_group

    def pieces(self, first: int, end: int) -> Iterator[Piece]:
        """The bursts from ``first`` to before ``end``, stripe by stripe."""
        stripe = self._stripe
        while first < end:
            number, at = divmod(first, stripe)
            stop = min(at + end - first, stripe)
            row, bank = divmod(number, self._banks)
            yield Piece(bank, row, at, stop)
            first += stop - at

    def even_pieces(self, first: int, end: int) -> list[tuple[int, int, int]]:
        """Of bursts that are the same in all pseudo channels: (bank, row, bursts in each), stripe by stripe."""
        number, at = divmod(first, self._stripe)
        if at + end - first <= self._stripe:
            return [(number % self._banks, number // self._banks, (end - first) // self.pseudo_channels)]
        pieces, channels = self.pieces(first, end), self.pseudo_channels
        return [(piece.bank, piece.row, (piece.end - piece.first) // channels) for piece in pieces]

    def share(self, piece: Piece, number: int) -> tuple[int, int]:
        """Of a piece, the bank group of the first burst in pseudo channel ``number``, and how many are there."""
        groups, line = self.groups, self.line
        begin = number * groups
        before, first = divmod(piece.first, line)
        lines, end = divmod(piece.end, line)
        skipped = min(max(first - begin, 0), groups)
        count = (lines - before) * groups + min(max(end - begin, 0), groups) - skipped
        return skipped % groups, count

    def shares(self, first: int, end: int) -> Iterator[tuple[Piece, int, int, int]]:
        """The bursts from ``first`` to before ``end`` by stripe and pseudo channel: (piece, number, group, bursts)."""
        for piece in self.pieces(first, end):
            for number in range(self.pseudo_channels):
                group, count = self.share(piece, number)
                if count:
                    yield piece, number, group, count


HBM_CONTROLLER = "hbm_controller"
_OFFSET_MASK = (1 << OFFSET_BITS) - 1
ROWS, REFRESH, OTHERS, QUEUE = "opening rows", "refresh", "other accesses", "room in the write queue"


class HbmParams(Section, frozen=True):
    """``params`` of the section, all but ``preset`` optional: ``channels`` of the slice, ``refresh``, ``page_policy``,
    ``front_end_ns``.

    ``null`` is the preset's value. ``read_latency_ns`` of the section is not used, and a user's value of it refused.
    """

    preset: str
    channels: Annotated[int, Meta(ge=1, le=64)] = 2
    refresh: Literal["none", "all_bank"] = "all_bank"
    page_policy: Literal["open", "closed"] | None = None
    front_end_ns: NonNegative | None = None


@MEMORY_KINDS.register(HBM_CONTROLLER)
class HbmController(StreamingPort):
    """The channels of a slice.

    * **Read**: ``front_end + tCL + burst`` until its first burst leaves, if its rows are open and the buses free; the
      others follow at the slice's bandwidth. The front end is a fixed path, stated apart from the DRAM.
    * **Write**: posted. It ends ``write_latency_ns`` of the section after its last byte is in the write queue, which is
      at once unless the queue is full; bursts are committed to the banks later, with no one waiting.

    What a read takes beyond that is noted by its reason: opening rows, refresh, other accesses. An access costs one
    event and arithmetic in the number of rows it touches; pseudo channels that are in the same state, as they are while
    all accesses are aligned, are worked out once.

    Limits: those of :mod:`sipsim.chips.ahbm.memory.pseudo_channel`; a read does not find its bytes in the write queue,
    it takes the way to the bank; all channels refresh at the same time; reads have no queue of finite length; refresh
    management, per-bank refresh, ECC, power states and temperature are not modelled. A write's bursts may be drained
    before all of its bytes have come, never before the first.
    """

    Params = HbmParams
    bandwidth_key = "params.preset"
    unused: ClassVar[dict[str, str]] = {"read_latency_ns": "params.front_end_ns"}

    def __init__(self, cost: MemoryCost | TcmCost, engine: Engine, store: MemoryStore) -> None:
        super().__init__(cost, engine, store)
        params: HbmParams = self.params
        preset = presets()[params.preset]
        self._mapping = Mapping(preset, params.channels)
        self._even = self._mapping.even_pieces
        self._timings = timings = preset.timings
        self._front_ps = ns_to_ps(preset.front_end_ns if params.front_end_ns is None else params.front_end_ns)
        is_closed = (params.page_policy or preset.page_policy) == "closed"
        self._row_ps = timings.rcd_read if is_closed else 0
        self._one = PseudoChannel(preset, is_closed, params.refresh == "all_bank")
        self._each: list[PseudoChannel] | None = None
        self.least_read_ps = self._front_ps + self._row_ps + timings.cl + timings.burst
        self.least_write_ps = ns_to_ps(cost.write_latency_ns)

    @classmethod
    def refusal(cls, params: Any, capacity_bytes: int) -> Refusal | None:
        preset = presets().get(params.preset)
        if preset is None:
            return Refusal("preset", unknown_name("HBM preset", params.preset, presets()))
        if what := no_power_of_two(params.channels):
            return Refusal("channels", f"address bits choose the channel, so it {what}")
        have = params.channels * preset.channel_MiB
        if capacity_bytes > have * MIB:
            want = capacity_bytes // MIB
            what = f"channels of {params.preset} hold {have} MiB, and a PE's slice has {want} MiB"
            return Refusal("channels", f"{what}; raise it, or lower cube.hbm_MiB_per_pe", (("cube", "hbm_MiB_per_pe"),))
        return None

    def check_buses(self) -> None:
        self._one.witness = BusWitness(f"{self.node}, its pseudo channels")

    def read_terms(self) -> tuple[AccessTerm, ...]:
        timings = self._timings
        front = AccessTerm("controller, front end of reads", "params.front_end_ns", self._front_ps)
        device = AccessTerm("read access", "params.preset", self._row_ps + timings.cl + timings.burst)
        return (front, device)

    def read_span_ps(self, nbytes: int) -> Ps:
        bursts = -(-nbytes // BURST_BYTES)
        return (-(-bursts // self._mapping.pseudo_channels) - 1) * self._timings.burst

    def claim_read(self, address: int, nbytes: int) -> tuple[Ps, Ps]:
        now_ps = self.engine.now_ps - self.origin_ps
        offset = address & _OFFSET_MASK
        first, end = offset // BURST_BYTES, -(-(offset + nbytes) // BURST_BYTES)
        channels = self._channels(first, end)
        numbers: list[int] = []
        if len(channels) == 1:
            placed = [self._one.read(now_ps, bank, row, 0, count) for bank, row, count in self._even(first, end)]
        else:
            shares = list(self._mapping.shares(first, end))
            numbers = [number for _, number, _, _ in shares]
            placed = [
                channels[number].read(now_ps, piece.bank, piece.row, group, count)
                for piece, number, group, count in shares
            ]
        start_ps, end_ps, ready_ps, _ = placed[0]
        if len(placed) > 1:
            start_ps, end_ps = min(each[0] for each in placed), max(each[1] for each in placed)
        burst_ps = self._timings.burst
        first_ps, span_ps = start_ps - now_ps + burst_ps + self._front_ps, end_ps - start_ps - burst_ps
        if self.waits is not None:
            refresh_ps = _waited_ps(now_ps, placed, numbers or [0] * len(placed))
            self._note_read(address, nbytes, first_ps, span_ps, refresh_ps, ready_ps - now_ps)
        return first_ps, span_ps

    def claim_write(self, address: int, nbytes: int, span_ps: Ps) -> Ps:
        now_ps = self.engine.now_ps - self.origin_ps
        came_ps, offset = now_ps - span_ps, address & _OFFSET_MASK
        first, end = offset // BURST_BYTES, -(-(offset + nbytes) // BURST_BYTES)
        channels = self._channels(first, end)
        if len(channels) == 1:
            write = self._one.write
            posted_ps = max(write(came_ps, now_ps, bank, row, 0, count) for bank, row, count in self._even(first, end))
        else:
            posted_ps = max(
                channels[number].write(came_ps, now_ps, piece.bank, piece.row, group, count)
                for piece, number, group, count in self._mapping.shares(first, end)
            )
        end_ps = posted_ps - now_ps + self.least_write_ps
        if posted_ps > now_ps:
            self.note_wait(False, address, nbytes, self.engine.now_ps + end_ps, (QUEUE, posted_ps - now_ps))
        return end_ps

    def _note_read(self, address: int, nbytes: int, first_ps: Ps, span_ps: Ps, refresh_ps: Ps, ready_ps: Ps) -> None:
        """Divide what a read took beyond its terms among its reasons. ``ready_ps``: from now on."""
        wait_ps = first_ps + span_ps - self.least_read_ps - self.read_span_ps(nbytes)
        refresh_ps = min(refresh_ps, wait_ps)
        rows_ps = min(ready_ps - self._timings.cl - self._row_ps, wait_ps - refresh_ps)
        reasons = (ROWS, rows_ps), (REFRESH, refresh_ps), (OTHERS, wait_ps - refresh_ps - max(rows_ps, 0))
        self.note_wait(True, address, nbytes, self.engine.now_ps + first_ps + span_ps, *reasons)

    def _channels(self, first: int, end: int) -> list[PseudoChannel]:
        """The pseudo channels; only the first while an access, like all before it, is the same in all of them."""
        if self._each is not None:
            return self._each
        line = self._mapping.line
        if first % line or end % line:
            self.part()
        return self._each or [self._one]

    def part(self) -> None:
        """Work out each pseudo channel by itself from now on."""
        self._each = [deepcopy(self._one) for _ in range(self._mapping.pseudo_channels)]
        for number, each in enumerate(self._each):
            if each.witness is not None:
                each.witness = BusWitness(f"{self.node}, pseudo channel {number}")


def _waited_ps(now_ps: Ps, placed: list[Placed], numbers: list[int]) -> Ps:
    """What the pseudo channel that refreshes delayed most waited for them. ``numbers``: of those of ``placed``.

    For a refresh that an earlier piece waited for, a later one waits only as far as it ends later.
    """
    ends_ps, waited_ps = dict.fromkeys(numbers, now_ps), dict.fromkeys(numbers, 0)
    for number, each in zip(numbers, placed, strict=True):
        waited_ps[number] += min(each.refresh_ps, max(each.end_ps - ends_ps[number], 0))
        ends_ps[number] = max(each.end_ps, ends_ps[number])
    return max(waited_ps.values())
