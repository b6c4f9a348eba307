"""Tenstorrent's systems as graphs: chips, links, neighbours, diameter, channels; and the choice of links for a hop."""

from collections import Counter
from itertools import pairwise
from typing import Any, cast

import pytest
from hardware import config
from hypothesis import given
from hypothesis import strategies as st
from schedules import Joined

from sipsim.chips.api.chip import CHIPS
from sipsim.config.schema import Sips
from sipsim.core.errors import ConfigError
from sipsim.fabric.sips import SipNetwork
from sipsim.topology.links import TOPOLOGIES, SipLink, build_links, natural_order, reserved_ports

WORMHOLE, BLACKHOLE = 16, 14
"""Ethernet channels of a chip: NUM_ETH_CHANNELS of tt-umd."""


def links_of(name: str, count: int, num_links: int | None = None) -> list[SipLink]:
    return build_links(Sips(count=count, topology=name, link="ucie", num_links=num_links))


def neighbours(links: list[SipLink]) -> dict[int, Counter[int]]:
    """By SIP, the number of links to each neighbour."""
    found: dict[int, Counter[int]] = {}
    for link in links:
        found.setdefault(link.src, Counter())[link.dst] += 1
    return found


def diameter(links: list[SipLink]) -> int:
    near = neighbours(links)

    def farthest(sip: int) -> int:
        reached, frontier, hops = {sip}, {sip}, 0
        while frontier := {far for each in frontier for far in near[each]} - reached:
            reached |= frontier
            hops += 1
        return hops

    return max(map(farthest, near))


# name, chips, links (both directions as one), links of a neighbour, neighbours: chips with so many, diameter, channels
SYSTEMS: list[tuple[str, int, int, int, dict[int, int], int, int]] = [
    ("n300", 2, 2, 2, {1: 2}, 1, WORMHOLE),
    ("t3000", 8, 20, 2, {2: 4, 3: 4}, 4, WORMHOLE),
    ("galaxy", 32, 208, 4, {2: 4, 3: 16, 4: 12}, 10, WORMHOLE),
    ("galaxy_torus", 32, 256, 4, {4: 32}, 6, WORMHOLE),
    ("blackhole_8", 8, 20, 2, {2: 4, 3: 4}, 4, BLACKHOLE),
    ("tt_line", 5, 4, 1, {1: 2, 2: 3}, 4, BLACKHOLE),
    ("tt_ring", 8, 8, 1, {2: 8}, 4, BLACKHOLE),
]


@pytest.mark.parametrize(("name", "chips", "n_links", "parallel", "degrees", "hops", "channels"), SYSTEMS)
def test_counts(
    name: str, chips: int, n_links: int, parallel: int, degrees: dict[int, int], hops: int, channels: int
) -> None:
    """Every directed link has its opposite, and every channel one link, which :func:`build_links` holds."""
    links = links_of(name, chips)
    near = neighbours(links)
    assert (len(near), len(links)) == (chips, 2 * n_links)
    assert {count for each in near.values() for count in each.values()} == {parallel}
    assert Counter(map(len, near.values())) == degrees
    assert diameter(links) == hops
    assert all((link.dst, link.dst_port, link.src, link.src_port) in links for link in links)
    assert {link.src_port for link in links} <= {f"eth{channel}" for channel in range(channels)}


def test_inner_chips_of_a_galaxy_use_all_channels() -> None:
    """The guide: those at edges and corners use fewer, and a torus all."""
    by_chip = Counter(link.src for link in links_of("galaxy", 32))
    assert [chip for chip, used in by_chip.items() if used == WORMHOLE] == [*range(9, 15), *range(17, 23)]
    assert set(Counter(link.src for link in links_of("galaxy_torus", 32)).values()) == {WORMHOLE}


GALAXY = [(0, 1, 8, 4), (3, 4, 8, 8), (4, 5, 4, 8), (0, 8, 12, 0), (8, 16, 12, 12), (16, 24, 0, 12)]
"""Neighbours in the first row and column, and the first channels of both: as in ``6u_cluster_desc``."""


@pytest.mark.parametrize(("a", "b", "at_a", "at_b"), GALAXY)
@pytest.mark.parametrize("name", ["galaxy", "galaxy_torus"])
def test_channels_of_a_galaxy(name: str, a: int, b: int, at_a: int, at_b: int) -> None:
    expected = [(a, f"eth{at_a + number}", b, f"eth{at_b + number}") for number in range(4)]
    assert [link for link in links_of(name, 32) if (link.src, link.dst) == (a, b)] == expected


def test_wraps_of_a_galaxy_take_the_free_channels() -> None:
    added = set(links_of("galaxy_torus", 32)) - set(links_of("galaxy", 32))
    assert len(added) == 2 * 4 * (4 + 8)
    assert {link.src_port for link in added} == {f"eth{channel}" for channel in range(8)}


@pytest.mark.usefixtures("any_port")
@pytest.mark.parametrize(("width", "height"), [(16, 4), (8, 8), (16, 8)])
def test_several_galaxies_are_a_mesh(width: int, height: int) -> None:
    """Each is a Galaxy as it is alone, and free channels of the same number join them."""
    links = build_links(sips_of({"topology": "galaxy", "count": width * height, "shape": [width, height]}))
    alone, between = set(links_of("galaxy", 32)), list[SipLink]()
    for link in links:
        (ax, ay), (bx, by) = ((sip % width, sip // width) for sip in (link.src, link.dst))
        if (ax // 8, ay // 4) == (bx // 8, by // 4):
            inside = link._replace(src=ax % 8 + ay % 4 * 8, dst=bx % 8 + by % 4 * 8)
            assert inside in alone
        else:
            assert abs(ax - bx) + abs(ay - by) == 1
            assert link.src_port == link.dst_port
            between.append(link)
    galaxies = width // 8 * (height // 4)
    assert len(links) - len(between) == galaxies * len(alone)
    assert len(between) == 2 * 4 * ((width // 8 - 1) * height + (height // 4 - 1) * width)


MESHES = [
    ("t3000", ((4, 0, 3, 7), (5, 1, 2, 6))),
    ("blackhole_8", ((1, 0, 2, 3), (5, 4, 6, 7))),
    ("galaxy", tuple(tuple(range(first, first + 8)) for first in range(0, 32, 8))),
]


@pytest.mark.parametrize(("name", "rows"), MESHES)
def test_meshes(name: str, rows: tuple[tuple[int, ...], ...]) -> None:
    """Rows and columns have all links, and there are no others."""
    lines = [*rows, *zip(*rows, strict=True)]
    expected = {frozenset(pair) for line in lines for pair in pairwise(line)}
    links = links_of(name, sum(map(len, rows)))
    assert {frozenset((link.src, link.dst)) for link in links} == expected


RINGS = [
    ("t3000", (0, 1, 2, 3)),
    ("t3000", (0, 4, 5, 1, 2, 6, 7, 3)),
    ("t3000", (0, 4, 5, 1, 2, 3, 0, 1, 2, 6, 7, 3)),
    ("blackhole_8", (1, 0, 2, 3, 7, 6, 4, 5)),
]


@pytest.mark.parametrize(("name", "ring"), RINGS)
def test_rings_of_neighbours(name: str, ring: tuple[int, ...]) -> None:
    """The guide's orders of devices of a T3000 for 4, 8 and 12 hops."""
    near = neighbours(links_of(name, 8))
    assert all(onward in near[sip] for sip, onward in pairwise((*ring, ring[0])))


def test_a_line_of_two_is_an_n300_board() -> None:
    assert links_of("tt_line", 2, 2) == links_of("n300", 2)


@given(st.integers(1, 9), st.none() | st.integers(1, 6), st.sampled_from(["tt_line", "tt_ring"]))
def test_lines_and_rings(count: int, num_links: int | None, name: str) -> None:
    """A ring of two is joined twice, as ``ring_1d`` is."""
    links = links_of(name, count, num_links)
    joins = (count - 1 if name == "tt_line" else count) if count > 1 else 0
    assert len(links) == 2 * joins * (num_links or 1)
    assert all({link.src - link.dst, link.dst - link.src} & {1, count - 1} for link in links)


# --- the choice of links ------------------------------------------------------------------------------------


def joined(name: str, count: int) -> Joined:
    return Joined(name, (count, 1))


@pytest.mark.parametrize("name", ["n300", "t3000"])
def test_the_dispatcher_has_one_link_from_each_local_chip(name: str) -> None:
    system = joined(name, TOPOLOGIES.get(name).size[0])  # type: ignore[index]
    of_boards = {(a, a + system.n_sips // 2) for a in range(system.n_sips // 2)}
    for link in system.links:
        pair = (link.src, link.dst)
        kept = 1 if pair in of_boards or pair[::-1] in of_boards else 2
        assert len(system.links_between(*pair)) == kept
        assert len(system.links_between(*pair, with_reserved=True)) == 2


@pytest.mark.parametrize("name", TOPOLOGIES.names())
def test_reserved_ports_are_both_ends_of_links(name: str) -> None:
    size = TOPOLOGIES.get(name).size
    links = links_of(name, size[0] * size[1]) if size else []
    reserved = reserved_ports(Sips(size[0] * size[1], name, "ucie"), links) if size else frozenset()
    assert {link.far_end for link in links if link.near_end in reserved} == reserved


def test_an_entry_is_one_link_in_both_directions() -> None:
    """Sorted by the ports of the lower number, eth9 before eth10; no neighbours have none."""
    edges = ((0, "eth10", 1, "eth0"), (0, "eth9", 1, "eth2"), (0, "E", 1, "eth1"), (1, "eth7", 2, "eth0"))
    system = Joined("custom", (3, 1), edges)
    onward, back = system.links_between(0, 1), system.links_between(1, 0)
    assert [(link.port, link.far_port) for link in onward] == [("E", "eth1"), ("eth9", "eth2"), ("eth10", "eth0")]
    assert [(link.far_port, link.port) for link in back] == [(link.port, link.far_port) for link in onward]
    for src, links in ((0, onward), (1, back)):
        for link in links:
            assert system.links[link.channel][:2] == (src, link.port)
    assert system.links_between(0, 2) == []


NEXT = [
    ((("eth10", 1), ("eth2", 1)), "eth2"),
    ((("eth2", 1), ("E", 2)), "eth2"),
    ((("eth0", 1), ("N", 1), ("W", 1)), "W"),
    ((("S", 1), ("N", 1)), "N"),
    ((("aux1", 1), ("eth0", 1)), "aux1"),
]


@pytest.mark.parametrize(("ports", "chosen"), NEXT)
def test_the_next_port(ports: tuple[tuple[str, int], ...], chosen: str) -> None:
    """Towards SIP 1: fewest hops, then E, W, N, S, then the others by their numbers."""
    edges = [(0, port, far, f"eth{number}") for number, (port, far) in enumerate(ports)]
    system = Joined("custom", (3, 1), (*edges, (1, "N", 2, "N")))
    assert system.next_port(0, 1) == chosen


def test_natural_order() -> None:
    names = ["eth10", "eth2", "E", "eth1a", "eth1", "aux", "W"]
    assert sorted(names, key=natural_order) == ["E", "W", "aux", "eth1", "eth1a", "eth2", "eth10"]


# --- the config ---------------------------------------------------------------------------------------------


@pytest.fixture
def any_port(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chip ahbm with the ports that Tenstorrent's have, as far as the config is concerned."""
    ports = [f"eth{channel}" for channel in range(WORMHOLE)]
    monkeypatch.setattr(type(CHIPS.get("ahbm")), "ports", lambda _kind, _resolved: ports)


def sips_of(settings: dict[str, Any]) -> Sips:
    return config({f"system.sips.{key}": value for key, value in settings.items()}).topology.system.sips


@pytest.mark.usefixtures("any_port")
@pytest.mark.parametrize(("name", "chips"), [row[:2] for row in SYSTEMS[:5]])
def test_a_topology_implies_its_count(name: str, chips: int) -> None:
    assert sips_of({"topology": name}).count == chips == sips_of({"topology": name, "count": chips}).count
    assert sips_of({"topology": "tt_ring"}).count == 2, "the default"
    assert sips_of({"topology": "galaxy", "shape": [16, 4]}).count == 64


MISTAKES = [
    ({"topology": "t3000", "count": 2}, "system.sips.count = 2: t3000 has 8 SIPs; leave the count out"),
    (
        {"topology": "galaxy", "shape": [4, 8]},
        "system.sips.shape = 4x8: galaxy is 8x4, or a mesh of several; give a multiple of each number, or no shape",
    ),
    (
        {"topology": "galaxy", "count": 64},
        "system.sips.count = 64: galaxy has 32 SIPs; for a mesh of several, give a shape of 64 SIPs, too",
    ),
    (
        {"topology": "galaxy", "count": 32, "shape": [16, 4]},
        "system.sips.shape = 16x4 has 64 places, but system.sips.count = 32; make them equal",
    ),
    ({"topology": "n300", "shape": [1, 2]}, "system.sips.shape = [1, 2]: n300 has no shape; leave it null"),
    (
        {"topology": "galaxy", "num_links": 4},
        "system.sips.num_links: given, but system.sips.topology is galaxy; "
        "use topology tt_line or tt_ring, or leave the number out",
    ),
    ({"topology": "tt_ring", "num_links": 0}, "system.sips.num_links = 0: must be at least 1, or null"),
    (
        {"topology": "custom", "custom_links": [{"a": 0, "a_port": "eth0.1", "b": 1, "b_port": "eth0>"}]},
        "system.sips.custom_links[0].a_port = 'eth0.1': "
        "must be a letter and then letters, digits or _, at most 16 characters in all",
    ),
    (
        {"topology": "custom", "custom_links": [{"a": 0, "a_port": "eth0", "b": 1, "b_port": "eth16"}]},
        "system.sips.custom_links[0].b_port = 'eth16': must be one of: "
        + ", ".join(f"eth{channel}" for channel in range(16)),
    ),
    (
        {"topology": "ring_1d"},
        "system.sips.topology = ring_1d: the topology uses port E, but a SIP of chip ahbm has ports "
        + ", ".join(f"eth{channel}" for channel in range(16))
        + "; use another chip or topology",
    ),
]


@pytest.mark.usefixtures("any_port")
@pytest.mark.parametrize(("settings", "line"), MISTAKES)
def test_mistakes(settings: dict[str, Any], line: str) -> None:
    with pytest.raises(ConfigError) as caught:
        sips_of(settings)
    assert str(caught.value).partition(": ")[2] == line


@pytest.mark.parametrize("name", [row[0] for row in SYSTEMS])
def test_chip_ahbm_has_other_ports(name: str) -> None:
    with pytest.raises(ConfigError, match=rf"topology = {name}: .* port eth.*chip ahbm has ports E, N, S, W;"):
        config({"system.chip": "ahbm", "system.sips.topology": name})


@pytest.mark.parametrize("name", [row[0] for row in SYSTEMS])
def test_a_topology_implies_its_chip_and_a_chip_its_links(name: str) -> None:
    """Where a user names neither."""
    chip, link = ("blackhole", "tenstorrent_400g") if name == "blackhole_8" else ("wormhole", "tenstorrent_100g")
    system = config({"system.sips.topology": name}).topology.system
    assert (system.chip, system.sips.link) == (chip, link)
    given = config({"system.sips.topology": name, "system.sips.link": "ethernet_100g"}).topology.system
    assert (given.chip, given.sips.link) == (chip, "ethernet_100g")
    assert config({"system.chip": "ahbm"}).topology.system.sips.link == "ucie"


@pytest.mark.usefixtures("any_port")
def test_the_digest_has_the_number_of_links_only_where_it_is_given() -> None:
    """Digests of systems without it are those of before it was there."""

    def view(settings: dict[str, Any]) -> dict[str, Any]:
        resolved = config({f"system.sips.{key}": value for key, value in settings.items()})
        made = SipNetwork(resolved)
        return cast(dict[str, Any], made.canonical_view()["topology"]["system"]["sips"])

    assert "num_links" not in view({"topology": "tt_ring"})
    assert view({"topology": "tt_ring", "num_links": 2})["num_links"] == 2
