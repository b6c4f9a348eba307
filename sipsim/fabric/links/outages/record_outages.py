"""What outages of links cost, by counters alone. Plain data, part of a rank's outcome."""

from operator import add
from typing import Annotated

import msgspec
from msgspec.structs import astuple

from sipsim.core.fields import no_time, simulated_time


class OutageUse(msgspec.Struct, frozen=True):
    """One outage of one direction of a link."""

    link: Annotated[str, no_time("The link, such as 0.E>1.W from port E of SIP 0 to port W of SIP 1.")]
    at_ps: Annotated[int, simulated_time("When it went down, in ps.")]
    for_ps: Annotated[int, simulated_time("How long it was down and retrained, in ps.")]
    resent_packets: Annotated[int, no_time("Packets that were sent again when it had resumed.")]
    duplicate_packets: Annotated[int, no_time("How many of them had arrived already, and were dropped.")]
    resent_bytes: Annotated[int, no_time("Bytes on the wire of the packets that were sent again.")]
    resent_ps: Annotated[int, simulated_time("How long these bytes keep the link busy, in ps.")]

    def plus(self, other: "OutageUse") -> "OutageUse":
        """Both together, of the same outage."""
        mine, its = astuple(self), astuple(other)
        return OutageUse(*mine[:3], *map(add, mine[3:], its[3:]))
