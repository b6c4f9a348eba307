"""What a router works on: the link and the memory of its Ethernet core, and the NoC of its chip."""

import struct
from collections.abc import Callable, Sequence
from functools import partial
from hashlib import sha256
from typing import Final, NamedTuple

from sipsim.chips.tensix.ethernet.ethernet import Transmitter
from sipsim.chips.tensix.fabric.channels import Handled, ReceiverChannel, SenderChannel
from sipsim.chips.tensix.fabric.connection import CONNECTION_BYTES, Connection
from sipsim.chips.tensix.fabric.layout import HELLO_BYTES, Layout, words
from sipsim.chips.tensix.fabric.packet import (
    Command,
    Hop,
    Target,
    Way,
    check_header,
    nbytes_of,
    next_hop,
    places,
    set_sender,
    unpack,
)
from sipsim.chips.tensix.fabric.router.router import MOST_SENDERS, Arrived, Router
from sipsim.chips.tensix.memory import TileMemory
from sipsim.chips.tensix.noc.floor_plan import Core
from sipsim.chips.tensix.tiles import Tiles
from sipsim.core.engine import Engine
from sipsim.core.errors import KernelMisuse

Ps = int
CREDITS: Final = struct.Struct(f"<BB{MOST_SENDERS}B{MOST_SENDERS}Bxx")
"""Virtual channel, a byte that is kept, and by sender channel slots completed and slots acknowledged."""

NOT_YOURS: Final = "kernels write into slots and the words of connections alone"
GREETING: Final = b"fabric "
"""How a hello begins."""


def hello_of(contract: str) -> bytes:
    """A hello: what does not fit is cut off, and a hash of all stands for it."""
    told = GREETING + contract.encode()
    if len(told) > HELLO_BYTES:
        cut = f"... {sha256(told).hexdigest()[:8]}".encode()
        told = told[: HELLO_BYTES - len(cut)] + cut
    return told.ljust(HELLO_BYTES)


def _nothing() -> None:
    """Nobody waits for a write."""


class Flush(NamedTuple):
    """An increment that goes out at ``at_ps``, and behind the writes of the packets ``behind``."""

    target: Target
    handled: Handled
    behind: tuple[Handled, ...]
    at_ps: Ps


class RouterMachine:
    """Of the router on tile ``core``. ``contract``: what both ends of the link must agree on, as text.
    ``stored_bytes``: of a packet, in each Ethernet subsystem.
    """

    def __init__(
        self,
        router: Router,
        core: Core,
        layout: Layout,
        contract: str,
        tiles: Tiles,
        transmitter: Transmitter,
        engine: Engine,
        stored_bytes: int,
    ) -> None:
        self.router = router
        self.core = core
        self.layout = layout
        self._contract = hello_of(contract)
        self._tiles = tiles
        self._memory: TileMemory = tiles.memory(core)
        self._transmitter = transmitter
        self._engine = engine
        self._stored_bytes = stored_bytes
        self._looked: dict[tuple[int, int], tuple[int, Arrived]] = {}
        self._neighbours: dict[Way, RouterMachine] = {}
        self._flushes: dict[int, Flush] = {}
        self.connection = Connection(f"{router.name} sender 0", router.senders[0], self._to_worker)
        self._notes: dict[int, Callable[[], None]] = {
            layout.hello: self._hello,
            layout.credits: self._credits,
            layout.connection: self._connection_word,
        }
        for receiver in router.receivers:
            arrived = partial(router.packet_arrived, receiver.vc)
            self._notes |= dict.fromkeys(receiver.ring.addresses(), arrived)
        for address in router.senders[0].ring.addresses():
            self._notes[address] = partial(self._written_by_worker, address)
        self._memory.clear(layout.connection, CONNECTION_BYTES)
        self._memory.watchers.append(self._note)
        self._memory.kept = range(layout.base, layout.end)
        router.machine = self

    def join(self, onward: Way, other: "RouterMachine") -> None:
        """Receivers here forward into sender channels of another router of this chip, whose link leads ``onward``."""
        self._neighbours[onward] = other

    def say_hello(self) -> None:
        """Tell the far end what this one is; it may have done so before."""
        self._transmitter.send_at(self._engine.now_ps, self.layout.hello, self._contract, self._stored_bytes)
        if self._memory.read(self.layout.hello, len(GREETING)) == GREETING:
            self._hello()

    # --- what a router does ---------------------------------------------------------------------------------------

    def wire_free_ps(self, now_ps: Ps) -> Ps:
        return self._transmitter.all_started_ps(now_ps)

    def send_packet(self, channel: SenderChannel, at_ps: Ps) -> None:
        shape, address = self.layout.shape, channel.ring.address(channel.sent)
        header = self._memory.read(address, shape.header_bytes)
        payload = self._memory.read(address + shape.header_bytes, words(nbytes_of(header)))
        data = set_sender(header, channel.number) + payload + bytes(shape.suffix_bytes)
        self._transmitter.send_at(at_ps, channel.far.ring.address(channel.far.sent), data, self._stored_bytes)

    def send_credits(self, vc: int, completed: Sequence[int], acked: Sequence[int], at_ps: Ps) -> None:
        data = CREDITS.pack(vc, 0, *completed, *acked)
        self._transmitter.send_between(at_ps, self.layout.credits, data)

    def look_into(self, channel: ReceiverChannel, number: int) -> Arrived:
        slot = channel.vc, number % channel.ring.slots
        looked = self._looked.get(slot)
        if looked is None or looked[0] != number:
            header = self._memory.read(channel.ring.address(number), self.layout.shape.header_bytes)
            if header[4] >= len(self.layout.shape.senders):
                raise KernelMisuse(f"a packet at {channel.name} is of no router: {header.hex()}; {NOT_YOURS}")
            hop = self._hop_of(header, channel)
            for way in hop.ways:
                if way not in channel.downstream:
                    what = f"the route of a packet leads {way.name} from {channel.name}, where the fabric has no link"
                    raise KernelMisuse(f"{what}; give it fewer hops")
            looked = self._looked[slot] = number, Arrived(hop, header[4])
        return looked[1]

    def _hop_of(self, header: bytes, channel: ReceiverChannel) -> Hop:
        hop = next_hop(header, self.router.own)
        if not hop.ways and not hop.is_local:
            raise KernelMisuse(f"a packet at {channel.name} has no route on: {header.hex()}")
        return hop

    def pass_on(
        self, channel: ReceiverChannel, arrived: Arrived, handled: Handled, at_ps: Ps, further_ps: Ps
    ) -> Ps | None:
        address, hop = channel.ring.address(channel.handled), arrived.hop
        nbytes = nbytes_of(hop.header)
        payload = self._memory.read(address + len(hop.header), nbytes)
        commands = 0
        for way in hop.ways:
            downstream, other = channel.downstream[way], self._neighbours[way]
            to = downstream.channel.ring.address(downstream.forwarded - 1)
            written = partial(other.router.packet_written, downstream.channel)
            self._write(other.core, to, hop.header + payload, at_ps + commands * further_ps, handled, written)
            commands += 1
        if not hop.is_local:
            return at_ps + (commands - 1) * further_ps
        return self._finish(unpack(hop.header).target, payload, at_ps + commands * further_ps, further_ps, handled)

    def _finish(self, target: Target, payload: bytes, at_ps: Ps, further_ps: Ps, handled: Handled) -> Ps | None:
        """The packet's command on this chip."""
        for core, address, nbytes in places(target, len(payload)):
            if self._tiles.memory(core).is_kept(address, nbytes):
                what = f"a packet for {nbytes} B at 0x{address:x} of core {core} came to {self.router.name}"
                raise KernelMisuse(f"{what}, and a router of the fabric has these; {NOT_YOURS}")
        if target.command is Command.INCREMENT:
            if target.is_flushed:
                return self._increment_flushed(target, at_ps, handled)
            self._increment(target, at_ps)
            return at_ps
        if target.command is Command.WRITE:
            self._write(target.core, target.address, payload, at_ps, handled)
            return at_ps
        if target.command is Command.SCATTER:
            first, rest = payload[: target.first_bytes], payload[target.first_bytes :]
            self._write(target.core, target.address, first, at_ps, handled)
            self._write(target.increment_core, target.increment_address, rest, at_ps + further_ps, handled)
            return at_ps + further_ps
        increment_ps = at_ps + further_ps
        if target.is_flushed:
            return self._finish_flushed(target, payload, at_ps, increment_ps, handled)
        if target.core == target.increment_core:
            # One way of the NoC keeps the order.
            self._write(target.core, target.address, payload, at_ps, handled)
            self._increment(target, increment_ps)
        else:
            written = partial(self._raise, target, increment_ps)
            self._write(target.core, target.address, payload, at_ps, handled, written)
        return increment_ps

    def _finish_flushed(
        self, target: Target, payload: bytes, at_ps: Ps, increment_ps: Ps, handled: Handled
    ) -> Ps | None:
        """Write the payload; the increment goes out behind it and behind what packets before it have open."""
        has_open = any(each.writes for each in handled.receiver.open)
        if has_open or target.core != target.increment_core:
            self._write(target.core, target.address, payload, at_ps, handled)
            return self._increment_flushed(target, increment_ps, handled)
        # One way of the NoC keeps the order of both, so that the flush only keeps the router.
        written = partial(self._flushed, handled, increment_ps)
        self._write(target.core, target.address, payload, at_ps, handled, written)
        self._increment(target, increment_ps)
        return None

    def _flushed(self, handled: Handled, least_ps: Ps) -> None:
        """The write of a packet has arrived; the router goes on when that was acknowledged."""
        self.router.resume(handled, max(handled.left_ps, least_ps))

    def _increment_flushed(self, target: Target, at_ps: Ps, handled: Handled) -> Ps | None:
        """Behind all writes of its receiver that are open, those of packets before it, too."""
        receiver = handled.receiver
        flush = Flush(target, handled, (*receiver.open, handled), at_ps)
        end_ps = self._flush(flush)
        if end_ps is None:
            self._flushes[receiver.vc] = flush
        return end_ps

    def _flush(self, flush: Flush) -> Ps | None:
        """Issue the increment when all writes before it are acknowledged: when that is, None if it is not known."""
        if any(each.writes for each in flush.behind):
            return None
        at_ps = max(flush.at_ps, *(each.left_ps for each in flush.behind))
        self._increment(flush.target, at_ps)
        return at_ps

    def _go_on(self, vc: int) -> None:
        """A write of a receiver has arrived, for which a flush may wait."""
        end_ps = self._flush(self._flushes[vc])
        if end_ps is not None:
            self.router.resume(self._flushes.pop(vc).handled, end_ps)

    def _raise(self, target: Target, increment_ps: Ps) -> None:
        """The write has arrived on another tile than the increment's, which comes behind it."""
        self._increment(target, max(increment_ps, self._engine.now_ps))

    def _write(
        self,
        core: Core,
        address: int,
        data: bytes,
        at_ps: Ps,
        handled: Handled,
        written: Callable[[], None] = _nothing,
    ) -> None:
        handled.writes += 1

        def arrived(acknowledged_ps: Ps) -> None:
            handled.writes -= 1
            handled.left_ps = max(handled.left_ps, acknowledged_ps)
            written()
            if handled.receiver.vc in self._flushes:
                self._go_on(handled.receiver.vc)
            self.router.wake()

        self._tiles.deliver(self.core, core, address, data, self.router.name, at_ps - self._engine.now_ps, arrived)

    def _increment(self, target: Target, at_ps: Ps) -> None:
        delay_ps, at = at_ps - self._engine.now_ps, (target.increment_core, target.increment_address)
        self._tiles.deliver_increment(self.core, *at, target.value, delay_ps, is_behind_writes=True)

    # --- what is written into its memory --------------------------------------------------------------------------

    def _note(self, address: int, _nbytes: int, _writer: str) -> None:
        found = self._notes.get(address)
        if found is not None:
            found()

    def _hello(self) -> None:
        told = self._memory.read(self.layout.hello, HELLO_BYTES)
        if told != self._contract:
            here, there = (
                each.removeprefix(GREETING).decode(errors="replace").rstrip() for each in (self._contract, told)
            )
            what = "both ends of its link must be of one fabric"
            raise KernelMisuse(f"{self.router.name}: {what}; here is {here}, there {there}")
        self.router.open()

    def _credits(self) -> None:
        vc, _, *counts = CREDITS.unpack(self._memory.read(self.layout.credits, CREDITS.size))
        if vc >= len(self.router.fars):
            raise KernelMisuse(f"{self.router.name}: what was written into its words for credits is none; {NOT_YOURS}")
        self.router.credits_arrived(vc, counts[:MOST_SENDERS], counts[MOST_SENDERS:])

    def _connection_word(self) -> None:
        self.connection.told(self._memory.read(self.layout.connection, 16))

    def _written_by_worker(self, address: int) -> None:
        self.connection.written(address)
        shape = self.layout.shape
        check_header(self._memory.read(address, shape.header_bytes), shape.payload_bytes, self._tiles.problem_of)
        self.router.packet_written(self.router.senders[0])

    def _to_worker(self, core: Core, address: int, value: int, at_ps: Ps) -> None:
        self._tiles.deliver_increment(self.core, core, address, value, max(at_ps - self._engine.now_ps, 0))
