"""Mux: a worker that forwards the packets of several clients, since a router's channel serves one worker at a time.

Each client connects to a channel of the mux in the same way as to a router; a channel has one client. The slots of a
channel may hold headers only, for packets without payload. The mux polls the channels in turn, one packet per visit.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

from sipsim.chips.tensix.dataflow import Dataflow
from sipsim.chips.tensix.fabric.channels import Ring, SenderChannel, SlotCredits
from sipsim.chips.tensix.fabric.connection import CONNECTION_BYTES, FabricEndpoint, FabricSender, WorkerConnection
from sipsim.chips.tensix.fabric.layout import words
from sipsim.chips.tensix.fabric.packet import check_header, nbytes_of
from sipsim.chips.tensix.noc import Core
from sipsim.chips.tensix.tiles import Tiles
from sipsim.core.errors import KernelMisuse

CONTROL_BYTES = 64


def mux_rings(room: range, full: int, headers: int, slots: int, onward: FabricEndpoint) -> list[Ring]:
    """Return the rings of a mux, of ``slots`` slots each, within the addresses ``room`` of the L1: first ``full`` rings
    for whole packets, then ``headers`` rings for headers only. The connection's words are in front of each ring.

    Raises:
        KernelMisuse: if the rings do not fit.
    """
    base, rings = room.start, list[Ring]()
    for number in range(full + headers):
        nbytes = onward.header_bytes + (words(onward.payload_bytes) if number < full else 0)
        rings.append(Ring(base + CONTROL_BYTES, slots, nbytes))
        base = rings[-1].end
    if base > room.stop:
        what = f"a mux of {full} + {headers} channels with {slots} slots"
        raise KernelMisuse(f"{what} needs {base - room.stop} B more of L1 than are free; give fewer channels or slots")
    return rings


class Mux:
    """Mux on tile ``core``, with a channel for each of ``rings``. ``onward``, ``onward_name``: endpoint and name of the
    router channel to which the mux sends. ``visit_ns``: time per packet. ``addresses``: L1 addresses that the mux uses.
    """

    def __init__(
        self,
        name: str,
        core: Core,
        rings: Sequence[Ring],
        onward: FabricEndpoint,
        onward_name: str,
        visit_ns: float,
        tiles: Tiles,
    ) -> None:
        self.core = core
        self.addresses = range(rings[0].base - CONTROL_BYTES, rings[-1].end)
        self._onward = onward
        self._onward_name = onward_name
        self._visit_ns = visit_ns
        self._tiles = tiles
        self._memory = tiles.memory(core)
        self._is_ending = False
        self._connections: list[WorkerConnection] = []
        self._watched: list[int] = []
        self.channels = [self._channel(f"{name} channel {number}", number, ring) for number, ring in enumerate(rings)]

    def endpoint(self, number: int, words_at: int) -> FabricEndpoint:
        """Return the endpoint for the client of a channel; ``words_at``: the ``words`` of :class:`FabricEndpoint`."""
        channel = self.channels[number]
        most, connection = self._most_bytes(channel), channel.ring.base - CONTROL_BYTES
        return self._onward._replace(
            router=self.core, connection=connection, ring=channel.ring, payload_bytes=most, words=words_at
        )

    def run(self, df: Dataflow) -> None:
        """Serve the channels in turn until :meth:`terminate`, then close the connection to the router."""
        sender = FabricSender(self._onward, df)
        sender.open()
        channels, turn, count = self.channels, 0, len(self.channels)
        while True:
            df.wait_until(self._may_go_on, "a packet for the mux")
            if not self._has_work():
                sender.close()
                return
            in_turn = (each % count for each in range(turn, turn + count))
            turn = next(each for each in in_turn if self._is_waiting(channels[each]))
            channel = channels[turn]
            slot = channel.ring.address(channel.sent)
            nbytes = nbytes_of(df.peek(slot, self._onward.header_bytes))
            df.instructions(self._visit_ns)
            sender.forward(slot, nbytes)
            df.noc_async_writes_flushed()
            channel.sent += 1
            channel.freed += 1
            df.owe_noc_command()
            channel.return_credits(1, 0)
            turn += 1

    def terminate(self) -> None:
        """End the mux once the clients have closed their connections and all their packets are sent."""
        if not self._is_ending:
            self._is_ending = True
            at = self.addresses.start + CONNECTION_BYTES
            self._tiles.store(self.core, at, bytes((1, 0, 0, 0)), "its fabric")

    def _may_go_on(self) -> bool:
        """Whether a packet is there, or the mux must end."""
        return self._has_work() or (self._is_ending and not any(each.worker for each in self._connections))

    def release(self) -> None:
        """Free the addresses of an ended mux."""
        for address in self._watched:
            self._memory.unwatch(address)

    def _has_work(self) -> bool:
        return any(map(self._is_waiting, self.channels))

    @staticmethod
    def _is_waiting(channel: SenderChannel) -> bool:
        return channel.sent < channel.written

    def _channel(self, name: str, number: int, ring: Ring) -> SenderChannel:
        channel = SenderChannel(name, number, ring, SlotCredits(self._onward_name, ring), 1)
        connection, memory, at = (
            WorkerConnection(name, channel, self._notify, self._onward.has_answer),
            self._memory,
            ring.base - CONTROL_BYTES,
        )
        self._tiles.clear(self.core, at, CONNECTION_BYTES)
        memory.watch(at, lambda _writer: connection.words_written(memory.read(at, 16)))
        self._connections.append(connection)
        self._watched += [at, *ring.addresses()]
        for address in ring.addresses():
            memory.watch(address, partial(self._written, channel, connection, address))
        return channel

    def _written(self, channel: SenderChannel, connection: WorkerConnection, address: int, _writer: str) -> None:
        connection.header_written(address)
        header = self._memory.read(address, self._onward.header_bytes)
        check_header(header, self._most_bytes(channel), self._tiles.problem_of, self._tiles.receivers)
        channel.written += 1

    def _most_bytes(self, channel: SenderChannel) -> int:
        """Return the largest payload that a channel can hold."""
        return min(channel.ring.slot_bytes - self._onward.header_bytes, self._onward.payload_bytes)

    def _notify(self, core: Core, address: int, value: int, _at_ps: int) -> None:
        self._tiles.deliver_increment(self.core, core, address, value, 0)


def run_mux(mux: Any, df: Dataflow) -> None:
    """Kernel of a :class:`Mux`."""
    mux.run(df)
