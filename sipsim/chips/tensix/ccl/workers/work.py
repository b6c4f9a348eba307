"""What the kernels of a worker do, as plain lists: packets to read, to add up, to send or to write. Pure.

A worker serves one link in one direction: its writer is connected to the router there, and what comes over that link
may raise its semaphores. ``Words`` lie in the L1 of every worker of an operation at the same addresses.
"""

from typing import NamedTuple

from sipsim.chips.tensix.dataflow import NocAddress
from sipsim.chips.tensix.fabric.connection import FabricEndpoint
from sipsim.chips.tensix.fabric.packet import Route
from sipsim.core.dtypes import DType

WORD_BYTES, LOCAL_BYTES, SHARED, LOCAL = 4, 16, 4, 3


class Words(NamedTuple):
    """Semaphores, by their address. ``ready``: chips that have begun; ``arrived``: chunks that are here for a relay;
    ``done``: sources all of whose data is here; ``partial``: chunks of the other worker of this chip. ``pushed``,
    ``summed`` and ``popped``: packets of the circular buffer, which all fabrics share, as the kernels of a chip's calls
    follow one another.
    """

    ready: int
    arrived: int
    done: int
    partial: int
    pushed: int
    summed: int
    popped: int

    @classmethod
    def at(cls, first: int, fabric: int) -> "Words":
        """Those of a fabric, from the address of all of them on. ``fabric``: a number that no other fabric of one of
        its chips has, as chips tell one another that they have begun while one of them is in a call on another fabric.
        """
        behind = first + LOCAL * LOCAL_BYTES + fabric * SHARED * WORD_BYTES
        ready, arrived, done, partial = (behind + number * WORD_BYTES for number in range(SHARED))
        local = (first + number * LOCAL_BYTES for number in range(LOCAL))
        return cls(ready, arrived, done, partial, *local)

    @property
    def end(self) -> int:
        """The address behind those of the fabric."""
        return self.partial + WORD_BYTES


class Until(NamedTuple):
    """Wait until a semaphore is ``value`` or more."""

    word: int
    value: int


class Packet(NamedTuple):
    """``reads``: places whose bytes are added up. It is written to ``local``, and sent along ``route`` to ``target``.
    ``signal``: a semaphore there that is raised behind it and what was sent before it; ``told``: one of this chip,
    behind the local write.
    """

    pages: int
    nbytes: int
    reads: tuple[NocAddress, ...]
    after: tuple[Until, ...] = ()
    local: NocAddress | None = None
    route: Route | None = None
    target: NocAddress | None = None
    signal: NocAddress | None = None
    told: NocAddress | None = None


class Buffer(NamedTuple):
    """The circular buffer of a worker: ``slots`` packets, each with room for ``operands``."""

    base: int
    slots: int
    slot_bytes: int
    operand_bytes: int

    def address(self, number: int) -> int:
        """Of packet ``number``."""
        return self.base + number % self.slots * self.slot_bytes


class Work(NamedTuple):
    """Of one worker in one call. ``hellos``: whom it tells that it has begun, with the semaphore there; ``begin``,
    ``end``: what it waits for before the first packet and behind the last.
    """

    endpoint: FabricEndpoint | None
    words: Words
    buffer: Buffer
    dtype: DType
    hellos: tuple[tuple[Route, NocAddress], ...]
    begin: tuple[Until, ...]
    packets: tuple[Packet, ...]
    end: tuple[Until, ...]
    launch_ns: float
    page_ns: float
    add_ns_per_byte: float
    batch: int

    @property
    def adds(self) -> bool:
        """Whether there is anything to add up."""
        return any(len(packet.reads) > 1 for packet in self.packets)
