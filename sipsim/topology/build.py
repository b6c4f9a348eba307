"""Makes the list of directed links from ``system.sips``: shape, checks, order.

A link leaves by a port and arrives at the opposite one (E to W, S to N; DESIGN section 5). A dimension of size 1
has no links; a wrapping dimension of size 2 has two, one through each pair of ports (the case of ADR-0025).
"""

import math

from sipsim.config.model import Sips
from sipsim.errors import ConfigError
from sipsim.registry import unknown_name
from sipsim.topology.base import TOPOLOGIES, Shape, SipLink

SHAPE_PATH = "system.sips.shape"


def resolve_shape(sips: Sips) -> Shape:
    """The (width, height) of a two-dimensional topology; ``(count, 1)`` for the others.

    Raises:
        ConfigError: a count that is not the product of the shape, or no shape and no perfect square; with the remedy.
    """
    if TOPOLOGIES.get(sips.topology).dimensions == 1:
        if sips.shape not in (None, (sips.count, 1)):
            raise ConfigError(f"{SHAPE_PATH} = {list(sips.shape)}: {sips.topology} has no shape; leave it null")
        return (sips.count, 1)
    if sips.shape is not None:
        width, height = sips.shape
        if width * height != sips.count:
            raise ConfigError(
                f"{SHAPE_PATH} = {width}x{height} has {width * height} places, but system.sips.count = {sips.count}; "
                f"make them equal"
            )
        return (width, height)
    side = math.isqrt(sips.count)
    if side * side == sips.count:
        return (side, side)
    width, height = _nearest_to_square(sips.count)
    raise ConfigError(
        f"{sips.topology} needs a perfect square of SIPs or a shape, and {sips.count} is no square; "
        f"add --shape {width}x{height}"
    )


def _nearest_to_square(count: int) -> Shape:
    height = max(d for d in range(1, math.isqrt(count) + 1) if count % d == 0)
    return (count // height, height)


def build_links(sips: Sips) -> list[SipLink]:
    """All directed links of the system, in canonical order.

    Raises:
        ConfigError: a custom edge that names a missing SIP, a port used twice, or SIPs that are not connected.
    """
    shape = resolve_shape(sips)
    links = sorted(TOPOLOGIES.get(sips.topology).build(sips, shape))
    used: set[tuple[int, str]] = set()
    for link in links:
        if link.src >= sips.count:
            raise ConfigError(f"system.sips.custom_links names SIP {link.src}; allowed: 0 to {sips.count - 1}")
        if link.src == link.dst:
            raise ConfigError(f"system.sips.custom_links joins SIP {link.src} to itself; name two different SIPs")
        if (link.src, link.src_port) in used:
            raise ConfigError(
                f"system.sips.custom_links uses port {link.src_port} of SIP {link.src} twice; a port carries one link"
            )
        used.add((link.src, link.src_port))
    _check_connected(sips, links)
    return links


def link_presets(sips: Sips, links: list[SipLink]) -> list[str]:
    """The preset's name of each directed link: ``system.sips.link`` unless its custom edge or ``links`` names another.

    Raises:
        ConfigError: for a port without a link, or a link whose two ends name different presets.
    """
    custom = {f"{edge.a}.{edge.a_port}": edge.link for edge in sips.custom_links if edge.link is not None}
    by_port = {link.near_end: link for link in links}
    presets: dict[str, str] = {}
    for source, own in (("custom_links", custom), ("links", sips.links)):
        named: dict[str, str] = {}
        for port, preset in own.items():
            link = by_port.get(port)
            if link is None:
                raise ConfigError(f"system.sips.{source} {port}: {unknown_name('port', port, by_port)}")
            if named.get(link.far_end, preset) != preset:
                other = f"{link.far_end} is {named[link.far_end]}"
                raise ConfigError(f"system.sips.{source} {port} = {preset}: one link, and its other end {other}")
            named[port] = preset
            if presets.setdefault(port, preset) != preset:
                other = f"custom_links names it {presets[port]}; drop one of them"
                raise ConfigError(f"system.sips.{source} {port} = {preset}: {other}")
            presets[link.far_end] = preset
    return [presets.get(link.near_end, sips.link) for link in links]


def _check_connected(sips: Sips, links: list[SipLink]) -> None:
    onward: dict[int, list[int]] = {}
    for link in links:
        onward.setdefault(link.src, []).append(link.dst)
    reached, frontier = {0}, [0]
    while frontier:
        new = set(onward.get(frontier.pop(), ())) - reached
        reached |= new
        frontier += new
    missing = sorted(set(range(sips.count)) - reached)
    if missing:
        raise ConfigError(f"system.sips: no path of links from SIP 0 to SIP {missing[0]}; join all SIPs")
