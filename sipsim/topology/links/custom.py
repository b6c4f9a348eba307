"""A topology from an edge list in the config."""

from collections.abc import Iterator

from sipsim.config.schema.model import Sips
from sipsim.topology.links.base import Shape, SipLink, both_directions, topology


@topology("custom", dimensions=1)
def custom(sips: Sips, shape: Shape) -> Iterator[SipLink]:
    """The edge list ``system.sips.custom_links``."""
    for link in sips.custom_links:
        yield from both_directions(link.a, link.a_port, link.b, link.b_port)
