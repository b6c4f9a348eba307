"""The ports and links by which a message between two ranks of a group travels. Pure."""

from collections.abc import Iterator

from sipsim.collectives.group.group import Group

Port = tuple[int, str]
"""A SIP, and the port by which a link leaves it."""


def route(group: Group, src: int, dst: int, direction: str) -> Iterator[Port]:
    """The ports by which a message between two ranks leaves a SIP: that of its direction, then the routed ones."""
    sip, goal, system = group.sips[src], group.sips[dst], group.system
    port = system.port_towards(sip, goal, direction)
    while sip != goal:
        yield sip, port
        sip = system.far_ends[sip, port].sip
        if sip != goal:
            port = system.next_port(sip, goal)
