"""Inter-SIP topologies: each built-in one as the exact list of its directed links, and the exact line of each error."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from sipsim.config.schema import CustomLink, Sips
from sipsim.core.errors import ConfigError
from sipsim.topology.links import TOPOLOGIES, build_links, link_presets, resolve_shape

OPPOSITE = {"E": "W", "W": "E", "N": "S", "S": "N"}


def sips(topology: str, count: int, shape: tuple[int, int] | None = None, custom: tuple[CustomLink, ...] = ()) -> Sips:
    return Sips(count=count, topology=topology, link="ucie", shape=shape, custom_links=custom)


def edge(text: str) -> CustomLink:
    """``0E-1W`` as an edge."""
    return CustomLink(a=int(text[0]), a_port=text[1], b=int(text[3]), b_port=text[4])


def names(system: Sips) -> list[str]:
    return [link.name for link in build_links(system)]


LISTS = [
    (sips("ring_1d", 1), ""),
    (sips("ring_1d", 2), "0.E>1.W 0.W>1.E 1.E>0.W 1.W>0.E"),
    (sips("ring_1d", 3), "0.E>1.W 0.W>2.E 1.E>2.W 1.W>0.E 2.E>0.W 2.W>1.E"),
    (sips("torus_2d", 1), ""),
    (
        sips("torus_2d", 4),
        "0.E>1.W 0.N>2.S 0.S>2.N 0.W>1.E 1.E>0.W 1.N>3.S 1.S>3.N 1.W>0.E "
        "2.E>3.W 2.N>0.S 2.S>0.N 2.W>3.E 3.E>2.W 3.N>1.S 3.S>1.N 3.W>2.E",
    ),
    (
        sips("torus_2d", 6, (3, 2)),
        "0.E>1.W 0.N>3.S 0.S>3.N 0.W>2.E 1.E>2.W 1.N>4.S 1.S>4.N 1.W>0.E 2.E>0.W 2.N>5.S 2.S>5.N 2.W>1.E "
        "3.E>4.W 3.N>0.S 3.S>0.N 3.W>5.E 4.E>5.W 4.N>1.S 4.S>1.N 4.W>3.E 5.E>3.W 5.N>2.S 5.S>2.N 5.W>4.E",
    ),
    (sips("torus_2d", 4, (1, 4)), "0.N>3.S 0.S>1.N 1.N>0.S 1.S>2.N 2.N>1.S 2.S>3.N 3.N>2.S 3.S>0.N"),
    (sips("torus_2d", 2, (2, 1)), "0.E>1.W 0.W>1.E 1.E>0.W 1.W>0.E"),
    (sips("mesh_2d_no_wrap", 1), ""),
    (sips("mesh_2d_no_wrap", 2, (2, 1)), "0.E>1.W 1.W>0.E"),
    (sips("mesh_2d_no_wrap", 4), "0.E>1.W 0.S>2.N 1.S>3.N 1.W>0.E 2.E>3.W 2.N>0.S 3.N>1.S 3.W>2.E"),
    (
        sips("mesh_2d_no_wrap", 6, (3, 2)),
        "0.E>1.W 0.S>3.N 1.E>2.W 1.S>4.N 1.W>0.E 2.S>5.N 2.W>1.E "
        "3.E>4.W 3.N>0.S 4.E>5.W 4.N>1.S 4.W>3.E 5.N>2.S 5.W>4.E",
    ),
    (sips("mesh_2d_no_wrap", 3, (1, 3)), "0.S>1.N 1.N>0.S 1.S>2.N 2.N>1.S"),
    (sips("custom", 1), ""),
    (
        sips("custom", 3, custom=(edge("0E-1W"), edge("1S-2E"))),
        "0.E>1.W 1.S>2.E 1.W>0.E 2.E>1.S",
    ),
    (sips("custom", 2, custom=(edge("1N-0N"), edge("0S-1S"))), "0.N>1.N 0.S>1.S 1.N>0.N 1.S>0.S"),
]


@pytest.mark.parametrize(("system", "expected"), LISTS, ids=lambda value: getattr(value, "topology", None))
def test_exact_links(system: Sips, expected: str) -> None:
    """A dimension of 1 has no links, a wrapping one of 2 has two."""
    assert names(system) == expected.split()


grids = st.tuples(st.integers(1, 5), st.integers(1, 5))


@given(grids, st.sampled_from(["torus_2d", "mesh_2d_no_wrap"]))
def test_grids_join_opposite_ports_in_both_directions(shape: tuple[int, int], topology: str) -> None:
    """Leaves by E, arrives at W."""
    links = set(build_links(sips(topology, shape[0] * shape[1], shape)))
    assert all(link.dst_port == OPPOSITE[link.src_port] for link in links)
    assert all((link.dst, link.dst_port, link.src, link.src_port) in links for link in links)


@given(grids)
def test_number_of_links_of_grids(shape: tuple[int, int]) -> None:
    width, height = shape
    torus = (2 * width * height if width > 1 else 0) + (2 * width * height if height > 1 else 0)
    mesh = 2 * ((width - 1) * height + width * (height - 1))
    assert len(build_links(sips("torus_2d", width * height, shape))) == torus
    assert len(build_links(sips("mesh_2d_no_wrap", width * height, shape))) == mesh


@pytest.mark.parametrize(
    ("system", "shape"),
    [
        (sips("ring_1d", 5), (5, 1)),
        (sips("ring_1d", 5, (5, 1)), (5, 1)),
        (sips("torus_2d", 9), (3, 3)),
        (sips("torus_2d", 4, (1, 4)), (1, 4)),
        (sips("mesh_2d_no_wrap", 64), (8, 8)),
        (sips("custom", 3), (3, 1)),
    ],
)
def test_resolve_shape(system: Sips, shape: tuple[int, int]) -> None:
    """A given shape wins over the square."""
    assert resolve_shape(system) == shape


SLOW = CustomLink(a=1, a_port="S", b=2, b_port="E", link="slow")
PRESETS: list[tuple[Sips, dict[str, str], str]] = [
    (sips("ring_1d", 2), {}, "ucie ucie ucie ucie"),
    (sips("ring_1d", 2), {"0.E": "slow"}, "slow ucie ucie slow"),
    (sips("ring_1d", 2), {"1.W": "slow", "1.E": "fast"}, "slow fast fast slow"),
    (sips("custom", 3, custom=(edge("0E-1W"), SLOW)), {}, "ucie slow ucie slow"),
    (sips("custom", 3, custom=(edge("0E-1W"), SLOW)), {"2.E": "slow", "0.E": "fast"}, "fast slow fast slow"),
]


@pytest.mark.parametrize(("system", "own", "presets"), PRESETS)
def test_each_link_names_its_preset(system: Sips, own: dict[str, str], presets: str) -> None:
    """Both directions of a link; what an edge or ``links`` names goes before ``link``."""
    changed = replace(system, links=own)
    assert " ".join(link_presets(changed, build_links(changed))) == presets


MISTAKES = [
    (sips("ring_1d", 6, (3, 2)), "system.sips.shape = [3, 2]: ring_1d has no shape; leave it null"),
    (
        sips("torus_2d", 5, (3, 2)),
        "system.sips.shape = 3x2 has 6 places, but system.sips.count = 5; make them equal",
    ),
    (
        sips("torus_2d", 6),
        "torus_2d needs a perfect square of SIPs or a shape, and 6 is no square; add --shape 3x2",
    ),
    (
        sips("mesh_2d_no_wrap", 7),
        "mesh_2d_no_wrap needs a perfect square of SIPs or a shape, and 7 is no square; take --sips 9, --shape 7x1 or "
        "--topology ring_1d",
    ),
    (
        sips("custom", 2, custom=(edge("0E-2W"),)),
        "system.sips.custom_links names SIP 2; allowed: 0 to 1",
    ),
    (
        sips("custom", 2, custom=(edge("1E-1W"),)),
        "system.sips.custom_links joins SIP 1 to itself; name two different SIPs",
    ),
    (
        sips("custom", 3, custom=(edge("0E-1W"), edge("0E-2W"))),
        "system.sips.custom_links uses port E of SIP 0 twice; use another port for one of the links",
    ),
    (
        sips("custom", 3, custom=(edge("1E-2W"),)),
        "system.sips: no path of links from SIP 0 to SIP 1; join all SIPs",
    ),
]


@pytest.mark.parametrize(("system", "line"), MISTAKES)
def test_mistakes(system: Sips, line: str) -> None:
    """Each error names the remedy."""
    with pytest.raises(ConfigError) as caught:
        build_links(system)
    assert str(caught.value) == line


def test_topologies_are_found_by_name() -> None:
    """Beside those of Tenstorrent, which ``test_tenstorrent_topologies.py`` has."""
    own = [name for name in TOPOLOGIES.names() if "tenstorrent" not in TOPOLOGIES.get(name).build.__module__]
    assert own == ["custom", "mesh_2d_no_wrap", "ring_1d", "torus_2d"]
