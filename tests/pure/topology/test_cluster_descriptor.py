"""Cluster descriptors: the examples as graphs, numbers of SIPs, places of chips. Mistakes are transcripts."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from msgspec import convert

from launcher.options import parse
from launcher.run.prepare import resolve
from sipsim.config.schema import Sips
from sipsim.config.yaml import MAX_FILE_BYTES
from sipsim.core.errors import ConfigError
from sipsim.topology.links import Location, build_links, locations, remote_sips, reserved_ports
from sipsim.topology.umd import Cluster, read_cluster

EXAMPLES = Path(__file__).resolve().parents[3] / "docs/examples"
Write = Callable[[dict[str, Any]], Path]


def end(chip: int, chan: int) -> dict[str, int]:
    return {"chip": chip, "chan": chan}


def keys(*chips: int, arch: str = "blackhole", **others: Any) -> dict[str, Any]:
    """A file without connections."""
    return {
        "arch": dict.fromkeys(chips, arch),
        "chips": {},
        "ethernet_connections": [],
        "chips_with_mmio": [],
        "harvesting": {},
        "boards": [],
        **others,
    }


def pair(*connections: Any, **others: Any) -> dict[str, Any]:
    """Chips 2 and 5, which are SIPs 0 and 1."""
    return keys(2, 5, ethernet_connections=list(connections) or [[end(2, 0), end(5, 3)]], **others)


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    monkeypatch.chdir(tmp_path)

    def written(values: dict[str, Any]) -> Path:
        Path("c.yaml").write_text(yaml.safe_dump(values, sort_keys=False))
        return Path("c.yaml")

    return written


def sips_of(cluster: Cluster) -> Sips:
    return convert({**cluster.sips(), "link": "ucie"}, Sips)


def location(cluster: Cluster, sip: int) -> Location:
    return locations(sips_of(cluster))[sip]


@pytest.mark.parametrize(("name", "chips"), [("n300", 2), ("t3000", 8)])
def test_examples_are_the_built_in_systems(name: str, chips: int) -> None:
    """Links, chips on PCIe, links of the dispatcher, and locations."""
    described, built_in = sips_of(read_cluster(EXAMPLES / f"{name}.yaml")), Sips(chips, name, "ucie")
    assert described.count == chips
    links = build_links(described)
    assert links == build_links(built_in)
    assert remote_sips(described) == remote_sips(built_in) == {*range(chips // 2, chips)}
    assert reserved_ports(described, links) == reserved_ports(built_in, links)
    assert locations(described) == locations(built_in)


def test_sips_are_chips_in_ascending_order_and_locations_are_x_y_rack_shelf() -> None:
    cluster = read_cluster(EXAMPLES / "t3000.yaml")
    assert cluster.chip_ids == (0, 1, 2, 3, 10, 11, 12, 13)
    assert location(cluster, 7) == Location(x=3, y=0, rack=0, shelf=0)
    assert location(cluster, 5) == Location(x=0, y=1, rack=0, shelf=0)
    assert cluster.arch == "wormhole_b0"


def test_ids_are_numbers_not_text(write: Write) -> None:
    """9 before 10; the order of connections and of their ends does not matter."""
    cables = [[end(9, 1), end(10, 4)], [end(200, 0), end(9, 0)], [end(10, 5), end(9, 2)]]
    made = read_cluster(write(keys(10, 200, 9, ethernet_connections=cables)))
    assert made.chip_ids == (9, 10, 200)
    assert made.connections == (((0, 0), (2, 0)), ((0, 1), (1, 4)), ((0, 2), (1, 5)))
    turned = [list(reversed(cable)) for cable in reversed(cables)]
    assert read_cluster(write(keys(9, 10, 200, ethernet_connections=turned))).sips() == made.sips()


PLACES = {2: [0, 0, 0, 0], 5: [1, 0, 0, 0]}
KEPT: dict[str, Any] = {
    "cluster_id": "here",
    "chip_unique_ids": {2: 14521741482},
    "ethernet_connections_to_remote_devices": [[end(2, 7), {"remote_chip_id": 14251335820, "chan": 7}]],
    "io_device_type": "PCIe",
    "chip_to_bus_id": {5: "0x0001"},
    "asic_locations": {2: 0, 5: 1},
    "chip_pci_bdfs": {2: "0000:01:00.0"},
    "boardtype": {2: "p150"},
    "chip_to_boardtype": {2: "p150"},
}


def test_optional_keys_are_kept(write: Write) -> None:
    """Without a location of any chip, as on Blackhole; a connection may say whether routing is enabled."""
    routed = [end(2, 0), end(5, 3), {"routing_enabled": True}]
    boards = {0: {"board_id": 72059269369839682, "board_type": "p150", "chips": [2]}}
    cluster = read_cluster(write(pair(routed, **{**KEPT, "boards": boards})))
    assert cluster.keys.cluster_id == "here"
    assert cluster.keys.chip_unique_ids == {"2": 14521741482}
    assert cluster.keys.boards == {"0": boards[0]}
    for name in KEPT:
        assert getattr(cluster.keys, name), name
    assert locations(sips_of(cluster)) == ()


def test_the_guides_file_says_less(write: Write) -> None:
    """Chips with places, the one with a host, and their connection: no architecture, harvesting or boards."""
    told = {"chips": PLACES, "chips_with_mmio": [{2: 0}], "ethernet_connections": [[end(2, 8), end(5, 0)]]}
    cluster = read_cluster(write(told))
    assert (cluster.arch, cluster.chip, location(cluster, 1)) == (None, None, Location(1, 0, 0, 0))
    assert cluster.sips() == read_cluster(write({**pair(), **told})).sips()


@pytest.mark.parametrize(
    ("hosted", "remote", "reserved"),
    [
        ([], [], set()),
        ([{2: 0}, {5: 1}], [], set()),
        ([{2: 0}], [1], {"0.eth9", "1.eth2"}),
        ([{5: 0}], [0], {"0.eth10", "1.eth1"}),
    ],
    ids=["unsaid", "both", "first", "second"],
)
def test_chips_with_a_host_say_which_link_is_the_dispatchers(
    hosted: list[dict[int, int]], remote: list[int], reserved: set[str], write: Write
) -> None:
    """The second one in the order of the local chip's channels."""
    cables = [[end(2, 10), end(5, 1)], [end(2, 9), end(5, 2)], [end(2, 8), end(5, 0)]]
    sips = sips_of(read_cluster(write(pair(*cables, chips_with_mmio=hosted))))
    assert list(sips.remote) == remote
    assert reserved_ports(sips, build_links(sips)) == reserved


def test_the_only_link_to_a_remote_chip_is_for_programs(write: Write) -> None:
    sips = sips_of(read_cluster(write(pair(chips_with_mmio=[{2: 0}]))))
    assert list(sips.remote) == [1]
    assert reserved_ports(sips, build_links(sips)) == set()


@pytest.mark.parametrize(("flags", "chip"), [([], "wormhole"), (["--chip", "blackhole"], "blackhole")])
def test_its_chips_are_those_of_wormhole_unless_a_flag_says(flags: list[str], chip: str, write: Write) -> None:
    path = write({"chips": PLACES, "ethernet_connections": [[end(2, 8), end(5, 0)]]})
    assert resolve(parse(["--cluster", str(path), *flags])).topology.system.chip == chip


@pytest.mark.parametrize(("name", "arch"), [("wormhole", "wormhole_b0"), ("Blackhole", "blackhole")])
def test_names_of_architectures_are_in_any_case(name: str, arch: str, write: Write) -> None:
    for each in (name, name.lower(), name.upper()):
        assert read_cluster(write(keys(0, arch=each))).arch == arch


def test_one_chip(write: Write) -> None:
    no_more = {"custom_links": [], "locations": [], "remote": []}
    assert read_cluster(write(keys(0))).sips() == {"topology": "custom", "count": 1, **no_more}


def test_too_many_chips_and_too_long_a_file(write: Write) -> None:
    with pytest.raises(ConfigError, match=r"^c\.yaml: arch: 2049 chips; must be at most 2048$"):
        read_cluster(write(keys(*range(2049))))
    Path("c.yaml").write_text("#" * (MAX_FILE_BYTES + 1))
    with pytest.raises(ConfigError, match=rf"^c\.yaml: larger than {MAX_FILE_BYTES} bytes; "):
        read_cluster(Path("c.yaml"))
