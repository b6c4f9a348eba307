"""Makes the list of directed links from ``system.sips``: shape, checks, order.

A link leaves by a port and arrives at the opposite one (E to W, S to N; DESIGN section 5). A dimension of size 1
has no links; a wrapping dimension of size 2 has two, one through each pair of ports (the case of ADR-0025).
"""

import math
from collections.abc import Iterable, Iterator

from sipsim.config.document import Path
from sipsim.config.schema.model import Resolved, Sips
from sipsim.core.errors import ConfigError
from sipsim.core.registry.registry import UnknownName, unknown_name
from sipsim.topology.links.base import TOPOLOGIES, Shape, SipLink, grid_text, natural_order

SHAPE_PATH = "system.sips.shape"


def implied_values(resolved: Resolved) -> Iterator[tuple[Path, int | str]]:
    """The number of SIPs and their chip where the topology has only one, for a config that does not say it."""
    try:
        chosen = TOPOLOGIES.get(resolved.topology.system.sips.topology)
    except UnknownName:
        return
    if chosen.size is not None:
        yield ("system", "sips", "count"), chosen.size[0] * chosen.size[1]
    if chosen.chip is not None:
        yield ("system", "chip"), chosen.chip


def resolve_shape(sips: Sips) -> Shape:
    """The (width, height) of a two-dimensional topology; ``(count, 1)`` for the others.

    Raises:
        ConfigError: a count that is not the product of the shape, or no shape and no perfect square; with the remedy.
    """
    chosen = TOPOLOGIES.get(sips.topology)
    if chosen.size is not None:
        _check_size(sips, chosen.size)
    if chosen.dimensions == 1:
        if sips.shape not in (None, (sips.count, 1)):
            raise ConfigError(f"{SHAPE_PATH} = {list(sips.shape)}: {sips.topology} has no shape; leave it null")
        return (sips.count, 1)
    if chosen.size is not None:
        return chosen.size
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
    shape = f"--shape {width}x{height}"
    fitting = (
        f"add {shape}"
        if height > 1
        else f"take --sips {max(2, round(sips.count**0.5)) ** 2}, {shape} or --topology ring_1d"
    )
    raise ConfigError(
        f"{sips.topology} needs a perfect square of SIPs or a shape, and {sips.count} is no square; {fitting}"
    )


def _check_size(sips: Sips, size: Shape) -> None:
    count, name = size[0] * size[1], sips.topology
    if sips.count != count:
        raise ConfigError(f"system.sips.count = {sips.count}: {name} has {count} SIPs; leave the count out")
    if size[1] > 1 and sips.shape not in (None, size):
        raise ConfigError(f"{SHAPE_PATH} = {grid_text(sips.shape)}: {name} is {grid_text(size)}; leave the shape out")


def _nearest_to_square(count: int) -> Shape:
    height = max(d for d in range(1, math.isqrt(count) + 1) if count % d == 0)
    return (count // height, height)


def build_links(sips: Sips) -> list[SipLink]:
    """All directed links of the system, in canonical order.

    Raises:
        ConfigError: a custom edge that names a missing SIP, a port used twice, or SIPs that are not connected.
    """
    shape = resolve_shape(sips)
    links = sorted(TOPOLOGIES.get(sips.topology).build(sips, shape), key=_canonical_order)
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


def _canonical_order(link: SipLink) -> tuple[object, ...]:
    return (link.src, natural_order(link.src_port), link.dst, natural_order(link.dst_port))


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
    missing = first_unreached(sips.count, ((link.src, link.dst) for link in links))
    if missing is not None:
        raise ConfigError(f"system.sips: no path of links from SIP 0 to SIP {missing}; join all SIPs")


def first_unreached(count: int, pairs: Iterable[tuple[int, int]]) -> int | None:
    """The first of ``count`` SIPs to which no path leads from SIP 0; a pair is a link from its first to its second."""
    onward: dict[int, list[int]] = {}
    for src, dst in pairs:
        onward.setdefault(src, []).append(dst)
    reached, frontier = {0}, [0]
    while frontier:
        new = set(onward.get(frontier.pop(), ())) - reached
        reached |= new
        frontier += new
    return next((sip for sip in range(count) if sip not in reached), None)
