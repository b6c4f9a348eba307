"""Reader of cluster descriptors: YAML files in which Tenstorrent's driver (UMD) describes chips and their connections.

Allowed keys are those of tt-umd's schema, ``docs/yaml_schemas/cluster_descriptor.yaml``, and two of its older files.
The CCL developer guide's files have only three keys: locations of chips, chips with a host, connections. A location is
``[x, y, rack, shelf]``: the driver's parser reads this order, although the schema states another. SIPs are the chips in
ascending order of their ids, which need not be 0 to n-1. Port ``ethN`` is channel ``N``.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, NamedTuple, NoReturn, TypeVar, get_origin

from msgspec import Meta

from sipsim.config.check import Path as KeyPath
from sipsim.config.check import Problem, convert_part, dotted, shown
from sipsim.config.schema import Section, field_types
from sipsim.config.yaml import one_line, read_mapping, shown_path
from sipsim.core.errors import ConfigError
from sipsim.topology.links import first_unreached
from sipsim.topology.tenstorrent import BLACKHOLE, WORMHOLE, port_of

MAX_CHIPS = 2048
"""Maximum number of chips in a file: the limit of SIPs."""
Natural = Annotated[int, Meta(ge=0)]
Channel = Annotated[int, Meta(ge=0, le=15)]
ARCHS = ("blackhole", "quasar", "wormhole", "wormhole_b0")
"""Names of architectures, in lower case; a file may use upper case too."""
SAME_ARCH = {"wormhole": "wormhole_b0"}
CHIPS_OF_ARCH = {"wormhole_b0": WORMHOLE, "blackhole": BLACKHOLE}
Part = TypeVar("Part")


class End(Section, frozen=True):
    """End of a connection: chip id and Ethernet channel."""

    chip: Natural
    chan: Channel


class Routing(Section, frozen=True):
    """Optional third entry of a connection, without effect."""

    routing_enabled: bool


class Harvesting(Section, frozen=True):
    """Masks of the parts of a chip that are switched off, without effect."""

    noc_translation: bool
    harvest_mask: Natural
    dram_harvesting_mask: Natural = 0
    eth_harvesting_mask: Natural = 0
    pcie_harvesting_mask: Natural = 0
    l2cpu_harvesting_mask: Natural = 0


class Keys(Section, frozen=True):
    """Keys of a file. Mappings by chip have chip ids as keys; keys that links do not need are only stored."""

    ethernet_connections: tuple[tuple[Any, ...], ...]
    arch: dict[str, str] = {}
    chips: dict[str, tuple[Natural, Natural, Natural, Natural]] = {}
    chips_with_mmio: tuple[dict[str, Natural], ...] = ()
    harvesting: dict[str, Harvesting] = {}
    boards: Any = None
    cluster_id: str | None = None
    chip_unique_ids: dict[str, Natural] = {}
    ethernet_connections_to_remote_devices: tuple[Any, ...] = ()
    io_device_type: str | None = None
    chip_to_bus_id: dict[str, str] = {}
    asic_locations: dict[str, Natural] = {}
    chip_pci_bdfs: dict[str, str] = {}
    boardtype: dict[str, str] = {}
    chip_to_boardtype: dict[str, str] = {}


class Connection(NamedTuple):
    """Connection of two ends, each a (SIP, channel) pair; the lower pair is ``a``."""

    a: tuple[int, int]
    b: tuple[int, int]


class Cluster(NamedTuple):
    """Cluster of a checked file. ``chip_ids``: by SIP, ascending; ``connections``: sorted; ``keys``: of the file."""

    chip_ids: tuple[int, ...]
    connections: tuple[Connection, ...]
    keys: Keys

    @property
    def arch(self) -> str | None:
        """The architecture of the chips; None if the file does not state it."""
        return min(map(_arch, self.keys.arch.values()), default=None)

    @property
    def chip(self) -> str | None:
        """The chip kind of the SIPs; None if the file states no architecture."""
        return None if self.arch is None else CHIPS_OF_ARCH[self.arch]

    def sips(self) -> dict[str, Any]:
        """Return the keys of ``system.sips`` that describe the same links, locations and hosts without the file.

        A file that names no chip on PCIe does not say which chips are remote: none is.
        """
        edges = [
            {"a": a, "a_port": port_of(a_channel), "b": b, "b_port": port_of(b_channel)}
            for (a, a_channel), (b, b_channel) in self.connections
        ]
        names = [str(chip) for chip in self.chip_ids]
        hosted = {chip for entry in self.keys.chips_with_mmio for chip in entry}
        return {
            "topology": "custom",
            "count": len(names),
            "custom_links": edges,
            "locations": [list(self.keys.chips[name]) for name in names] if self.keys.chips else [],
            "remote": [sip for sip, name in enumerate(names) if name not in hosted] if hosted else [],
        }


def read_cluster(path: Path) -> Cluster:
    """Return the cluster that a file describes.

    Raises:
        ConfigError: for the first mistake; one line with the file, the key and what is wrong.
    """
    return _Reader(path).cluster()


class _Reader:
    """Reader of one file; it raises at the first mistake."""

    def __init__(self, path: Path) -> None:
        self._shown = shown_path(path)
        self._keys: Keys = self._as(read_mapping(path), Keys, ())
        self._ids = sorted(self._chip_ids())
        self._names = set(map(str, self._ids))
        self._sip_of = {chip: sip for sip, chip in enumerate(self._ids)}

    def cluster(self) -> Cluster:
        self._check_tables()
        connections = sorted(self._connections())
        self._check_joined(connections)
        return Cluster(tuple(self._ids), tuple(connections), self._keys)

    def _refuse(self, text: str) -> NoReturn:
        raise ConfigError(one_line(f"{self._shown}: {text}"))

    def _as(self, value: Any, to: type[Part], path: KeyPath) -> Part:
        try:
            return convert_part(value, to, path)
        except Problem as problem:
            self._refuse(str(problem))

    def _chip_ids(self) -> Iterator[int]:
        keys = self._keys
        for chip, arch in keys.arch.items():
            if arch.lower() not in ARCHS:
                self._refuse(f"arch.{chip} = {shown(arch)}: must be one of: {', '.join(ARCHS)}")
        archs = {*map(_arch, keys.arch.values())}
        for arch in sorted(archs - CHIPS_OF_ARCH.keys()):
            self._refuse(f"arch: {arch} is not simulated; use {' or '.join(CHIPS_OF_ARCH)}")
        if len(archs) > 1:
            self._refuse(f"arch: chips are {' and '.join(sorted(archs))}; must be one kind for all SIPs of a system")
        name, given = ("arch", list(keys.arch)) if keys.arch else ("chips", list(keys.chips))
        if not given:
            self._refuse("neither arch nor chips names a chip; name every chip in one of these keys")
        if len(given) > MAX_CHIPS:
            self._refuse(f"{name}: {len(given)} chips; must be at most {MAX_CHIPS}")
        for text in given:
            if not (text.isascii() and text.isdigit() and len(text) <= 9 and str(int(text)) == text):
                self._refuse(f"{name}: {shown(text)} is no chip id; must be a whole number, such as 0")
            yield int(text)

    def _check_tables(self) -> None:
        """Check that mappings by chip name existing chips, and that all chips have locations, or none (Blackhole)."""
        keys = self._keys
        by_chip = [name for name, kind in field_types(Keys).items() if get_origin(kind) is dict]
        for name in by_chip:
            for chip in getattr(keys, name):
                self._check_chip((name, chip), chip)
        for number, entry in enumerate(keys.chips_with_mmio):
            for chip in entry:
                self._check_chip(("chips_with_mmio", number, chip), chip)
        missing = [chip for chip in keys.arch if chip not in keys.chips]
        if keys.chips and missing:
            self._refuse(f"chips: chip {missing[0]} has no location; give all chips a location, or none")
        boards = keys.boards if isinstance(keys.boards, list) else []
        for path, chip in _chips_of_boards(boards):
            self._check_chip(path, chip)

    def _check_chip(self, path: KeyPath, chip: object) -> None:
        if str(chip) not in self._names:
            self._refuse(f"{dotted(path)}: there is no chip {shown(chip)}; chips are {self._chips_text()}")

    def _chips_text(self) -> str:
        first, *_, last = [*self._ids, self._ids[-1]]
        is_range = len(self._ids) > 2 and last - first == len(self._ids) - 1
        text = f"{first} to {last}" if is_range else ", ".join(map(str, self._ids))
        return text if len(text) <= 60 else f"{first}, ... {last}"

    def _chip_text(self, chip: int) -> str:
        return f"chip {chip} (SIP {self._sip_of[chip]})"

    def _connections(self) -> Iterator[Connection]:
        used: dict[tuple[int, int], tuple[int, Connection]] = {}
        for number, parts in enumerate(self._keys.ethernet_connections):
            path: KeyPath = ("ethernet_connections", number)
            ends = [self._as(part, End, (*path, index)) for index, part in enumerate(parts[:2])]
            if len(ends) < 2 or len(parts) > 3:
                self._refuse(f"{dotted(path)}: must be two ends, such as [{{chip: 0, chan: 8}}, {{chip: 1, chan: 0}}]")
            for index, part in enumerate(parts[2:], start=2):
                self._as(part, Routing, (*path, index))
            for index, end in enumerate(ends):
                self._check_chip((*path, index, "chip"), end.chip)
            if ends[0].chip == ends[1].chip:
                self._refuse(f"{dotted(path)}: joins {self._chip_text(ends[0].chip)} to itself; name two chips")
            first, last = sorted((self._sip_of[end.chip], end.chan) for end in ends)
            connection = Connection(first, last)
            for index, end in enumerate(ends):
                user, other = used.setdefault((end.chip, end.chan), (number, connection))
                if user != number:
                    before = dotted(("ethernet_connections", user))
                    if other == connection:
                        self._refuse(f"{dotted(path)}: the same connection as {before}; remove one of the two")
                    channel = f"channel {end.chan} of {self._chip_text(end.chip)}"
                    self._refuse(f"{dotted((*path, index))}: {before} already uses {channel}; name another channel")
            yield connection

    def _check_joined(self, connections: list[Connection]) -> None:
        pairs = [(a, b) for (a, _), (b, _) in connections]
        missing = first_unreached(len(self._ids), [*pairs, *((b, a) for a, b in pairs)])
        if missing is not None:
            ends = f"{self._chip_text(self._ids[0])} to {self._chip_text(self._ids[missing])}"
            self._refuse(f"ethernet_connections: no path from {ends}; join all chips")


def _arch(name: str) -> str:
    """Return the newest name of an architecture."""
    return SAME_ARCH.get(name.lower(), name.lower())


def _chips_of_boards(boards: list[Any]) -> Iterator[tuple[KeyPath, object]]:
    """Yield the key path and value of each chip that boards name; a board is a list of mappings with one key."""
    for number, board in enumerate(boards):
        for position, entry in enumerate(board if isinstance(board, list) else ()):
            chips = entry.get("chips") if isinstance(entry, dict) else None
            for index, chip in enumerate(chips if isinstance(chips, list) else ()):
                yield ("boards", number, position, "chips", index), chip
