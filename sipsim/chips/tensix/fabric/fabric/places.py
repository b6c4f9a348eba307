"""Which chips a fabric has, and who is whose neighbour in which direction. Pure."""

from collections.abc import Sequence
from typing import Any

from sipsim.chips.tensix.fabric.layout import Idle
from sipsim.chips.tensix.fabric.packet import Way
from sipsim.core.errors import KernelMisuse

Neighbours = dict[Way, int]
TOPOLOGIES = ("line", "ring", "neighbor", "mesh")
ROLES = ("dateline", "upstream", "adjacent")
"""Routers near a dateline: on its link, on the other link of a chip at its end, and at the far end of that."""


class Places:
    """``chips``: ranks in order, row by row in a ``mesh`` of ``columns``. ``passing``: sender channels of a router, for
    each virtual channel, that other receivers of its chip fill.
    """

    def __init__(self, topology: str, chips: Sequence[int], columns: int = 0) -> None:
        if topology not in TOPOLOGIES:
            raise KernelMisuse(f"a fabric's topology is {', '.join(TOPOLOGIES)}, not {topology!r}")
        if len(set(chips)) != len(chips):
            raise KernelMisuse(f"a chip stands twice in {list(chips)}")
        least = 3 if topology == "ring" else 2
        if len(chips) < least:
            raise KernelMisuse(f"a {topology} of {len(chips)} chips; it has {least} or more")
        if topology != "mesh" and columns:
            raise KernelMisuse(f"columns={columns} of a {topology}; a mesh has columns, leave them out")
        if topology == "mesh" and (columns < 1 or len(chips) % columns):
            raise KernelMisuse(f"a mesh of {len(chips)} chips in {columns} columns; give columns that divide them")
        self.topology = topology
        self.chips = list(chips)
        self.columns = columns if topology == "mesh" else len(chips)
        self.is_ring = topology == "ring"
        self.passing = {"line": 1, "ring": 1, "neighbor": 0, "mesh": 3}[topology]

    @property
    def size(self) -> int:
        """The number of chips."""
        return len(self.chips)

    @property
    def told(self) -> str:
        """The chips in order, runs as ``first-last``; of a mesh with its columns."""
        runs = list[list[int]]()
        for chip in self.chips:
            if runs and chip == runs[-1][-1] + 1:
                runs[-1][1:] = [chip]
            else:
                runs.append([chip])
        text = " ".join("-".join(map(str, run)) for run in runs)
        return f"{text} in {self.columns} columns" if self.topology == "mesh" else text

    def position(self, rank: int) -> int:
        """Of a chip.

        Raises:
            KernelMisuse: for one that is not in it.
        """
        if rank not in self.chips:
            raise KernelMisuse(f"SIP {rank} opens a fabric of chips {self.chips}, which it is none of")
        return self.chips.index(rank)

    def neighbours(self, rank: int) -> Neighbours:
        """By direction."""
        index, found = self.position(rank), dict[Way, int]()
        row, column = divmod(index, self.columns)
        for way, down, right in ((Way.E, 0, 1), (Way.W, 0, -1), (Way.S, 1, 0), (Way.N, -1, 0)):
            at_row, at_column = row + down, column + right
            if self.is_ring:
                at_column %= self.columns
            if 0 <= at_column < self.columns and 0 <= at_row < self.size // self.columns:
                found[way] = self.chips[at_row * self.columns + at_column]
        return found

    def is_dateline(self, rank: int, way: Way) -> bool:
        """Whether the link of a chip's router is the one at which packets change their virtual channel."""
        index = self.position(rank)
        return (index == 0 and way is Way.W) or (index == self.size - 1 and way is Way.E)

    def role(self, rank: int, way: Way) -> str:
        """Of a router of a ring with a dateline, among ``ROLES``; "" for any other."""
        far = self.neighbours(rank)[way]
        if self.is_dateline(rank, way):
            return "dateline"
        for chip, role in ((rank, "upstream"), (far, "adjacent")):
            if self.position(chip) in (0, self.size - 1):
                return role
        return ""

    def idle(self, role: str) -> Idle:
        """Channels that no packet comes to which makes less than a whole turn: on the dateline's link nothing is on
        virtual channel 1 yet, what leaves a chip at its end has changed to that, and nothing on it goes to that chip.
        """
        vc_0, vc_1 = 1, 1 + self.passing
        return {"dateline": Idle((vc_1,), (1,)), "upstream": Idle((vc_0,), (1,)), "adjacent": Idle((vc_1,))}[role]

    def order(self, onward: Way, came: Way) -> int:
        """Which of its passing sender channels a router has for what comes over the link to ``came``."""
        others = [way for way in (Way.E, Way.W, Way.N, Way.S) if way is not onward]
        return 0 if self.passing == 1 else others.index(came)

    def channel(self, plan: Any, rank: int, way: Way, link: int) -> int:
        """The Ethernet channel of a link.

        Raises:
            KernelMisuse: where there are fewer links.
        """
        far = self.neighbours(rank)[way]
        channels = plan.links_to(rank, far)
        if link >= len(channels):
            what = f"{len(channels)} links lead from SIP {rank} to SIP {far}"
            raise KernelMisuse(
                f"the fabric wants {link + 1} links or more side by side, and {what}; give fewer with num_links"
            )
        return int(channels[link])

    def first_link(self, plan: Any, num_links: int) -> int:
        """The least number of its links among those of the system: all its chips find the same one, and no other fabric
        does, as a link is of one fabric.
        """
        return min(
            int(plan.links[rank][self.channel(plan, rank, way, link)].number)
            for rank in self.chips
            for way in self.neighbours(rank)
            for link in range(num_links)
        )
