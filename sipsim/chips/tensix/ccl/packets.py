"""Packets of pages: the partition of tensors' pages into packets, and the calls of kernels that move a packet."""

from collections.abc import Sequence
from typing import NamedTuple

from sipsim.chips.tensix.ccl.tensors import PageGroup, Part, Segments, pieces
from sipsim.chips.tensix.dataflow import Dataflow
from sipsim.core.errors import KernelMisuse


class Packet(NamedTuple):
    """Pages that one message of a data mover carries, without gaps. The pages have a place in each of the tensors that
    :func:`packetize` was given.
    """

    groups: tuple[PageGroup, ...]

    @property
    def pages(self) -> int:
        """The number of pages."""
        return sum(group.pages for group in self.groups)

    @property
    def nbytes(self) -> int:
        """The size of the pages in bytes."""
        return sum(group.nbytes for group in self.groups)

    def read(self, tensor: int, address: int, df: Dataflow) -> None:
        """Start to read the pages of tensor number ``tensor`` into this L1, from ``address`` on."""
        for group in self.groups:
            df.noc_async_read(group.places[tensor], address, group.nbytes)
            address += group.nbytes

    def write(self, tensor: int, address: int, df: Dataflow) -> None:
        """Start to write the pages in this L1, from ``address`` on, to tensor number ``tensor``."""
        for group in self.groups:
            df.noc_async_write(address, group.places[tensor], group.nbytes)
            address += group.nbytes


def segments_per_packet(segments: Segments, packet_bytes: int) -> int:
    """Return the number of segments in a full packet.

    Raises:
        KernelMisuse: if a segment is longer than a packet.
    """
    if segments.nbytes > packet_bytes:
        what = f"{segments.tensor}: its segments are {segments.nbytes} B, more than a packet of {packet_bytes} B"
        longer = "packet_bytes of packetize, ccl.data_mover_packet_bytes"
        raise KernelMisuse(f"{what}; give shorter rows, or longer packets ({longer})")
    return packet_bytes // segments.nbytes


def packetize(parts: Sequence[Part], packet_bytes: int) -> list[Packet]:
    """Return packets of up to ``packet_bytes`` of the segments, such as pages, that several tensors have in the same
    order. All packets but the last have the same number of segments.

    Raises:
        KernelMisuse: if a segment is longer than a packet.
    """
    segments, numbers = parts[0]
    count = segments_per_packet(segments, packet_bytes)
    return [
        Packet(tuple(pieces([(each, some[first : first + count]) for each, some in parts], packet_bytes)))
        for first in range(0, len(numbers), count)
    ]
