"""Topologies of SIPs: the directed links that ``system.sips`` describes, and the rules for its keys.

A link leaves by a port and arrives at the opposite port (E to W, S to N). In a grid, with or without wrap, rank = row *
width + column. A dimension of size 1 has no links; a wrapping one of size 2 has two per pair of SIPs (ADR-0025).
"""

import math
import re
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import NamedTuple

from sipsim.config.check import Path, Problem, Rule, check_registered, refused, shown
from sipsim.config.schema import Resolved, Sips
from sipsim.core.registry import Registry, UnknownName, unknown_name

Shape = tuple[int, int]


def grid_text(shape: Shape) -> str:
    """Return a shape as text for flags and result files, such as ``3x2``."""
    return f"{shape[0]}x{shape[1]}"


class Location(NamedTuple):
    """Location of a SIP: column and row in the mesh of its shelf, and the numbers of rack and shelf."""

    x: int
    y: int
    rack: int = 0
    shelf: int = 0


class SipLink(NamedTuple):
    """Directed link from a port of a SIP to a port of another SIP."""

    src: int
    src_port: str
    dst: int
    dst_port: str

    @property
    def near_end(self) -> str:
        """The port where the link starts, as ``SIP.port``."""
        return f"{self.src}.{self.src_port}"

    @property
    def far_end(self) -> str:
        """The port where the link ends, as ``SIP.port``."""
        return f"{self.dst}.{self.dst_port}"

    @property
    def name(self) -> str:
        return f"{self.near_end}>{self.far_end}"


Builder = Callable[[Sips, Shape], Iterator[SipLink]]


class Topology(NamedTuple):
    """Topology: ``build`` yields all directed links of a system with a given shape.

    ``dimensions``: 1 or 2; two dimensions require a shape or a square count. ``size``: the fixed (width, height) of the
    topology, ``(count, 1)`` with one dimension; None if any size is allowed. ``is_block``: whether several such meshes
    side by side make a larger one. ``takes_num_links``: ``build`` reads ``system.sips.num_links``. ``chip``: the chip
    kind of the SIPs if the config names none. ``rows``: the SIPs of each row of the mesh, if these are not numbered row
    by row. ``remote``: the SIPs that no host reaches over PCIe.
    """

    dimensions: int
    build: Builder
    size: Shape | None = None
    takes_num_links: bool = False
    chip: str | None = None
    rows: tuple[tuple[int, ...], ...] = ()
    remote: tuple[int, ...] = ()
    is_block: bool = False


TOPOLOGIES: Registry[Topology] = Registry(
    "topology",
    {
        "sipsim.topology.links": (
            "custom",
            "ring_1d",
            "torus_2d",
            "mesh_2d_no_wrap",
        ),
        "sipsim.topology.tenstorrent": (
            "n300",
            "t3000",
            "galaxy",
            "galaxy_torus",
            "blackhole_8",
            "tt_line",
            "tt_ring",
        ),
    },
    objects_of=Topology,
)


def topology(
    name: str,
    dimensions: int,
    size: Shape | None = None,
    takes_num_links: bool = False,
    chip: str | None = None,
    rows: tuple[tuple[int, ...], ...] = (),
    remote: tuple[int, ...] = (),
    is_block: bool = False,
) -> Callable[[Builder], Builder]:
    """Return a decorator that registers a builder as topology ``name``; other arguments: see :class:`Topology`."""

    def add(build: Builder) -> Builder:
        TOPOLOGIES.register(name, build)(
            Topology(dimensions, build, size, takes_num_links, chip, rows, remote, is_block)
        )
        return build

    return add


@cache
def natural_order(port: str) -> tuple[str | int, ...]:
    """Return a sort key for names of ports that compares numbers in them as numbers: eth2 before eth10."""
    texts_and_numbers = re.split("([0-9]+)", port)
    return tuple(int(part) if index % 2 else part for index, part in enumerate(texts_and_numbers))


def both_directions(a: int, a_port: str, b: int, b_port: str) -> Iterator[SipLink]:
    """Yield the two directed links of one cable."""
    yield SipLink(a, a_port, b, b_port)
    yield SipLink(b, b_port, a, a_port)


SIPS: Path = ("system", "sips")
LINK_KEYS = tuple((*SIPS, key) for key in ("topology", "count", "shape", "custom_links"))
"""Paths of the keys that determine the links between SIPs."""
PRESET_KEYS = ((*SIPS, "links"), (*SIPS, "custom_links"))
"""Paths of the keys that determine the presets of links."""
SHAPE_PATH = "system.sips.shape"


def implied_values(resolved: Resolved) -> Iterator[tuple[Path, int | str]]:
    """Yield the paths and values of the SIP count and chip kind if the topology, or the shape of a mesh of several,
    fixes these; they replace defaults.
    """
    try:
        chosen = TOPOLOGIES.get(resolved.topology.system.sips.topology)
    except UnknownName:
        return
    if chosen.size is not None:
        given = resolved.topology.system.sips.shape if chosen.is_block else None
        yield ("system", "sips", "count"), math.prod(given or chosen.size)
    if chosen.chip is not None:
        yield ("system", "chip"), chosen.chip


def resolve_shape(sips: Sips) -> Shape:
    """Return the (width, height) of a two-dimensional topology; ``(count, 1)`` for a one-dimensional one.

    Raises:
        Problem: if the count differs from the shape's or the topology's, or is no square and there is no shape.
    """
    chosen = TOPOLOGIES.get(sips.topology)
    if chosen.size is not None:
        _check_size(sips, chosen.size, chosen.is_block)
    if chosen.dimensions == 1:
        if sips.shape not in (None, (sips.count, 1)):
            raise Problem(LINK_KEYS, f"{SHAPE_PATH} = {list(sips.shape)}: {sips.topology} has no shape; leave it null")
        return (sips.count, 1)
    if chosen.size is not None and sips.shape is None:
        return chosen.size
    if sips.shape is not None:
        width, height = sips.shape
        if width * height != sips.count:
            places = f"{SHAPE_PATH} = {width}x{height} has {width * height} places"
            raise Problem(LINK_KEYS, f"{places}, but system.sips.count = {sips.count}; make them equal")
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
    what = f"needs a perfect square of SIPs or a shape, and {sips.count} is no square; {fitting}"
    raise Problem(LINK_KEYS, f"{sips.topology} {what}")


def _check_size(sips: Sips, size: Shape, is_block: bool) -> None:
    count, name = size[0] * size[1], sips.topology
    if is_block and sips.shape is not None and sips.shape != size:
        if sips.shape[0] % size[0] or sips.shape[1] % size[1]:
            what = f"{name} is {grid_text(size)}, or a mesh of several; give a multiple of each number, or no shape"
            raise Problem(LINK_KEYS, f"{SHAPE_PATH} = {grid_text(sips.shape)}: {what}")
        return
    if sips.count != count:
        several = is_block and sips.count % count == 0
        fix = f"for a mesh of several, give a shape of {sips.count} SIPs, too" if several else "leave the count out"
        raise Problem(LINK_KEYS, f"system.sips.count = {sips.count}: {name} has {count} SIPs; {fix}")
    if size[1] > 1 and sips.shape not in (None, size):
        what = f"{name} is {grid_text(size)}; leave the shape out"
        raise Problem(LINK_KEYS, f"{SHAPE_PATH} = {grid_text(sips.shape)}: {what}")


def _nearest_to_square(count: int) -> Shape:
    height = max(d for d in range(1, math.isqrt(count) + 1) if count % d == 0)
    return (count // height, height)


def build_links(sips: Sips) -> list[SipLink]:
    """Return all directed links of the system, in canonical order.

    Raises:
        Problem: for a custom edge with an unknown SIP, a port used twice, or SIPs that are not connected.
    """
    shape = resolve_shape(sips)
    links = sorted(TOPOLOGIES.get(sips.topology).build(sips, shape), key=_canonical_order)
    used: set[tuple[int, str]] = set()
    for link in links:
        if link.src >= sips.count:
            what = f"names SIP {link.src}; allowed: 0 to {sips.count - 1}"
            raise Problem(LINK_KEYS, f"system.sips.custom_links {what}")
        if link.src == link.dst:
            what = f"joins SIP {link.src} to itself; name two different SIPs"
            raise Problem(LINK_KEYS, f"system.sips.custom_links {what}")
        if (link.src, link.src_port) in used:
            what = f"uses port {link.src_port} of SIP {link.src} twice; use another port for one of the links"
            raise Problem(LINK_KEYS, f"system.sips.custom_links {what}")
        used.add((link.src, link.src_port))
    missing = first_unreached(sips.count, ((link.src, link.dst) for link in links))
    if missing is not None:
        raise Problem(LINK_KEYS, f"system.sips: no path of links from SIP 0 to SIP {missing}; join all SIPs")
    return links


def _canonical_order(link: SipLink) -> tuple[object, ...]:
    return (link.src, natural_order(link.src_port), link.dst, natural_order(link.dst_port))


def remote_sips(sips: Sips) -> frozenset[int]:
    """Return the SIPs that no host reaches over PCIe."""
    return frozenset((*TOPOLOGIES.get(sips.topology).remote, *sips.remote))


def reserved_ports(sips: Sips, links: Iterable[SipLink]) -> frozenset[str]:
    """Return the ports at both ends, as ``SIP.port``, of links that are reserved for the dispatcher.

    Source: the CCL developer guide, where a link from a local chip carries the programs of its remote chip. Assumed:
    this is the second link from the remote SIP's first neighbour on PCIe, in the order of that neighbour's ports. If
    only one link joins the two, it is not reserved.
    """
    remote, onward = remote_sips(sips), dict[int, dict[int, list[SipLink]]]()
    for link in sorted(links, key=_canonical_order) if remote else ():
        if link.dst in remote and link.src not in remote:
            onward.setdefault(link.dst, {}).setdefault(link.src, []).append(link)
    second = [link for near in onward.values() for link in near[min(near)][1:2]]
    return frozenset(end for link in second for end in (link.near_end, link.far_end))


def locations(sips: Sips) -> tuple[Location, ...]:
    """Return the location of each SIP; empty if the config of topology ``custom`` does not state them."""
    chosen = TOPOLOGIES.get(sips.topology)
    if chosen.rows:
        place = {sip: Location(x, y) for y, row in enumerate(chosen.rows) for x, sip in enumerate(row)}
        return tuple(place[sip] for sip in range(sips.count))
    if chosen.build is custom:
        return tuple(Location(*each) for each in sips.locations)
    width, _ = resolve_shape(sips)
    return tuple(Location(sip % width, sip // width) for sip in range(sips.count))


def link_presets(sips: Sips, links: list[SipLink]) -> list[str]:
    """Return the preset of each directed link: ``system.sips.link`` unless its custom edge or ``links`` names another.

    Raises:
        Problem: for a port without a link, or a link whose two ends name different presets.
    """
    custom = {f"{edge.a}.{edge.a_port}": edge.link for edge in sips.custom_links if edge.link is not None}
    by_port = {link.near_end: link for link in links}
    presets: dict[str, str] = {}
    for source, presets_by_port in (("custom_links", custom), ("links", sips.links)):
        named: dict[str, str] = {}
        for port, preset in presets_by_port.items():
            link = by_port.get(port)
            if link is None:
                raise Problem(PRESET_KEYS, f"system.sips.{source} {port}: {unknown_name('port', port, by_port)}")
            if named.get(link.far_end, preset) != preset:
                what = f"the link's other end {link.far_end} has preset {named[link.far_end]}; use one for both ends"
                raise Problem(PRESET_KEYS, f"system.sips.{source} {port} = {preset}: {what}")
            named[port] = preset
            if presets.setdefault(port, preset) != preset:
                what = f"custom_links gives this link preset {presets[port]}; remove one of the two"
                raise Problem(PRESET_KEYS, f"system.sips.{source} {port} = {preset}: {what}")
            presets[link.far_end] = preset
    return [presets.get(link.near_end, sips.link) for link in links]


def first_unreached(count: int, pairs: Iterable[tuple[int, int]]) -> int | None:
    """Return the first of ``count`` SIPs without a path from SIP 0, if any; ``pairs``: (from, to) of each link."""
    onward: dict[int, list[int]] = {}
    for src, dst in pairs:
        onward.setdefault(src, []).append(dst)
    reached, frontier = {0}, [0]
    while frontier:
        new = set(onward.get(frontier.pop(), ())) - reached
        reached |= new
        frontier += new
    return next((sip for sip in range(count) if sip not in reached), None)


@topology("custom", dimensions=1)
def custom(sips: Sips, shape: Shape) -> Iterator[SipLink]:
    """The edge list ``system.sips.custom_links``."""
    for link in sips.custom_links:
        yield from both_directions(link.a, link.a_port, link.b, link.b_port)


def _grid(shape: Shape, wrap: bool) -> Iterator[SipLink]:
    width, height = shape
    for y in range(height):
        for x in range(width):
            if width > 1 and (wrap or x + 1 < width):
                yield from both_directions(y * width + x, "E", y * width + (x + 1) % width, "W")
            if height > 1 and (wrap or y + 1 < height):
                yield from both_directions(y * width + x, "S", ((y + 1) % height) * width + x, "N")


@topology("ring_1d", dimensions=1)
def ring_1d(sips: Sips, shape: Shape) -> Iterator[SipLink]:
    """``count`` SIPs in a ring, E to W; two SIPs are joined twice."""
    return _grid((sips.count, 1), wrap=True)


@topology("torus_2d", dimensions=2)
def torus_2d(sips: Sips, shape: Shape) -> Iterator[SipLink]:
    """A grid that wraps in both dimensions."""
    return _grid(shape, wrap=True)


@topology("mesh_2d_no_wrap", dimensions=2)
def mesh_2d_no_wrap(sips: Sips, shape: Shape) -> Iterator[SipLink]:
    """A grid without wrap."""
    return _grid(shape, wrap=False)


MAX_PORT_LENGTH = 16
_PORT = re.compile(f"[A-Za-z][A-Za-z0-9_]{{0,{MAX_PORT_LENGTH - 1}}}", re.ASCII)


def known_topology(resolved: Resolved) -> None:
    """Check that ``system.sips.topology`` is a registered topology."""
    check_registered((*SIPS, "topology"), resolved.topology.system.sips.topology, TOPOLOGIES)


def custom_links_are_used(resolved: Resolved) -> None:
    """Check that an edge list is given only for topology ``custom``: others ignore the list."""
    sips = resolved.topology.system.sips
    if sips.custom_links and sips.topology != "custom":
        what = f"given, but system.sips.topology is {sips.topology}; use topology custom or leave the list out"
        raise Problem(((*SIPS, "custom_links"), (*SIPS, "topology")), f"system.sips.custom_links: {what}")


def descriptor_keys_fit(resolved: Resolved) -> None:
    """Check that ``locations`` and ``remote`` belong to a topology ``custom``, and name its SIPs."""
    sips = resolved.topology.system.sips
    for key, given in (("locations", sips.locations), ("remote", sips.remote)):
        if given and sips.topology != "custom":
            what = f"given, but system.sips.topology is {sips.topology}; use topology custom or leave the key out"
            raise Problem(((*SIPS, key), (*SIPS, "topology")), f"system.sips.{key}: {what}")
    if sips.locations and len(sips.locations) != sips.count:
        what = f"must be a location of each of the {sips.count} SIPs, or empty"
        raise refused((*SIPS, "locations"), f"{len(sips.locations)} locations", what)
    for number, sip in enumerate(sips.remote):
        if sip >= sips.count:
            raise refused((*SIPS, "remote", number), shown(sip), f"must be a SIP, 0 to {sips.count - 1}")


def num_links_are_used(resolved: Resolved) -> None:
    """Check that a number of links is given only for a topology that uses the number."""
    sips = resolved.topology.system.sips
    if sips.num_links is not None and not TOPOLOGIES.get(sips.topology).takes_num_links:
        able = " or ".join(name for name in TOPOLOGIES.names() if TOPOLOGIES.get(name).takes_num_links)
        what = f"given, but system.sips.topology is {sips.topology}; use topology {able}, or leave the number out"
        raise Problem(((*SIPS, "num_links"), (*SIPS, "topology")), f"system.sips.num_links: {what}")


def ports_have_names(resolved: Resolved) -> None:
    """Check that names of ports can be parts of link names and flags."""
    for number, edge in enumerate(resolved.topology.system.sips.custom_links):
        for key, port in (("a_port", edge.a_port), ("b_port", edge.b_port)):
            if not _PORT.fullmatch(port):
                what = f"must be a letter and then letters, digits or _, at most {MAX_PORT_LENGTH} characters in all"
                raise refused((*SIPS, "custom_links", number, key), shown(port), what)


RULES: tuple[Rule, ...] = (
    custom_links_are_used,
    descriptor_keys_fit,
    num_links_are_used,
    ports_have_names,
)
