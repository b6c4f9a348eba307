"""The transmitting side of an Ethernet core: commands go into a queue, take the link, and arrive without a notice.

A message passes three stages, each one message at a time and in order: the near Ethernet subsystem reads it out of L1,
the wire carries its packets, the far subsystem writes it into L1. Only when its last byte is there does the far core
see any of it. All of this is known when the command is taken, so a message costs one event, its arrival.
"""

from collections import deque
from collections.abc import Callable

from sipsim.engine import Engine
from sipsim.errors import KernelMisuse
from sipsim.links.base import AnyLinkKind
from sipsim.tensix.floor_plan import Core
from sipsim.tensix.log import TileLog
from sipsim.tensix.memory import TileMemory
from sipsim.tensix.params import EthernetParams
from sipsim.units import drain_ps, gbytes_per_s_to_bps

Ps = int
WORD_BYTES = 16
"""Addresses and sizes of Ethernet commands are multiples of it."""


class Transmitter:
    """One direction of a link. ``link``: its kind; ``send(arrival_ps, address, data)``: to the far core's L1, which
    is as large as this one. ``core``: whose it is, for ``log``.
    """

    def __init__(
        self,
        link: AnyLinkKind,
        params: EthernetParams,
        memory: TileMemory,
        engine: Engine,
        send: Callable[[Ps, int, bytes], None],
        core: Core,
        log: TileLog,
    ) -> None:
        self.link = link
        self._core = core
        self._log = log
        self._memory = memory
        self._engine = engine
        self._send = send
        self._accept_ahead = params.accept_ahead
        self._copy_bps = None if params.copy_GBps is None else gbytes_per_s_to_bps(params.copy_GBps)
        self._starts: deque[Ps] = deque()
        self._read_ps = self._wire_ps = self._written_ps = 0
        self.messages = 0
        self.bytes_sent = 0

    def is_busy(self) -> bool:
        """Whether the queue takes no command now: ``accept_ahead`` of them wait for the wire."""
        starts, now = self._starts, self._engine.now_ps
        while starts and starts[0] <= now:
            starts.popleft()
        return len(starts) >= self._accept_ahead

    def free_at_ps(self) -> Ps:
        """When the queue takes a command: the first of those that wait has gone on the wire by then."""
        return self._starts[0] if self.is_busy() else self._engine.now_ps

    def submit(self, source: int, destination: int, nbytes: int) -> None:
        """Take a command: ``nbytes`` from here to an address there.

        Raises:
            MemoryAccessError: outside of L1.
            KernelMisuse: while the queue is busy.
        """
        if self.is_busy():
            raise KernelMisuse(
                f"the transmit queue of core {self._core} is busy with {len(self._starts)} commands; ask "
                "eth_txq_is_busy before a command is submitted, or let eth_send_packet wait"
            )
        self._memory.check(destination, nbytes)
        now, copy_ps = self._engine.now_ps, self._copy_ps(nbytes)
        self._read_ps = max(self._read_ps, now) + copy_ps
        start_ps = max(self._read_ps, self._wire_ps)
        self._starts.append(start_ps)
        self._wire_ps = start_ps + self.link.drain_ps(nbytes)
        self._written_ps = max(self._written_ps, self._wire_ps + self.link.latency_ps) + copy_ps
        self._memory.pin(source, nbytes, self._wire_ps, "an Ethernet transmission")
        self.messages += 1
        self.bytes_sent += nbytes
        self._log.eth_send(self._core, 0, source, destination, nbytes, self._wire_ps, self._written_ps)
        self._send(self._written_ps, destination, self._memory.read(source, nbytes))

    def _copy_ps(self, nbytes: int) -> Ps:
        return 0 if self._copy_bps is None else drain_ps(nbytes, self._copy_bps)
