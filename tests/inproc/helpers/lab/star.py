"""A topology of a user's module: SIP 0 is joined to all others, by ports ``spoke1`` and on, which arrive at ``hub``."""

from collections.abc import Iterator

from sipsim.config.schema import Sips
from sipsim.topology.links import Shape, SipLink, both_directions, topology


@topology(__name__, dimensions=1)
def star(sips: Sips, shape: Shape) -> Iterator[SipLink]:
    for sip in range(1, sips.count):
        yield from both_directions(0, f"spoke{sip}", sip, "hub")
