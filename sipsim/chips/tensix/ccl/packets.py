"""Packets of pages: the partition of tensors' pages into packets, and the calls of kernels that move a packet."""

from collections.abc import Sequence
from typing import NamedTuple

from sipsim.chips.tensix.ccl.tensors import PageGroup, Tensor, pieces
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


def pages_per_packet(tensor: Tensor, packet_bytes: int) -> int:
    """Return the number of a tensor's pages in a full packet.

    Raises:
        KernelMisuse: if a page is longer than a packet.
    """
    page_bytes = tensor.pages.page_bytes
    if page_bytes > packet_bytes:
        what = f"{tensor}: its pages are {page_bytes} B, more than a packet of {packet_bytes} B"
        raise KernelMisuse(f"{what}; give shorter rows, or longer packets")
    return packet_bytes // page_bytes


def packetize(parts: Sequence[tuple[Tensor, Sequence[int]]], packet_bytes: int) -> list[Packet]:
    """Return packets of up to ``packet_bytes`` of the pages that several tensors have in the same order. A part: a
    tensor, and the numbers of the pages. All packets but the last have the same number of pages.

    Raises:
        KernelMisuse: if a page is longer than a packet.
    """
    tensor, numbers = parts[0]
    count = pages_per_packet(tensor, packet_bytes)
    return [
        Packet(tuple(pieces([(each, pages[first : first + count]) for each, pages in parts], packet_bytes)))
        for first in range(0, len(numbers), count)
    ]
