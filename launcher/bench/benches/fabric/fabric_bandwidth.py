"""``ahbm-bench fabric-bandwidth``: bytes a second over the busiest link of a fabric, all workers sending at once."""

import argparse
import re
from dataclasses import dataclass
from typing import ClassVar

from launcher import flag_types
from launcher.bench.base import BENCHES, Bench, Case, Claim, Figure
from launcher.bench.benches.fabric.traffic import (
    Line,
    Workers,
    all_on_mesh,
    busiest,
    from_one,
    from_one_on_mesh,
    on_line,
    on_ring,
    through_one_link,
)
from launcher.bench.machine import Machine
from launcher.bench.published import Published
from sipsim.chips.tensix.fabric.fabric.places import ROLES
from sipsim.core.errors import ConfigError

GOLDEN = ("fabric_edm_bandwidth_t3k", "fabric_edm_bandwidth_6u", "fabric_edm_bandwidth_wh8", "fabric_edm_bandwidth_bh")
SUMMARY = (
    "fabric_bandwidth_summary_t3k",
    "fabric_bandwidth_summary_whgalaxy",
    "fabric_bandwidth_summary_bh_p150",
)
COMMANDS = {
    "noc_unicast_write": "write",
    "noc_unicast_scatter_write": "scatter",
    "noc_unicast_flush_atomic_inc": "increment_flush",
    "noc_unicast_no_flush_atomic_inc": "increment",
    "noc_unicast_atomic_inc": "increment",
    "noc_fused_unicast_write_flush_atomic_inc": "fused",
    "noc_fused_unicast_write_no_flush_atomic_inc": "fused_no_flush",
    "noc_fused_unicast_atomic_inc": "fused",
}
"""NoC messages as published rows name them, and as the host script does."""
PATTERNS = ("neighbor", "line", "line_halves", "line_forward", "line_one_forward", "one_to_all", "half_ring",
            "half_ring_by_turns", "full_ring", "saturate_ring", "line_on_ring", "line_on_ring_halves",
            "line_on_ring_forward", "mesh_one_to_all", "mesh_all")  # fmt: skip
TESTS_OF_SUMMARY = {
    "NeighborExchangeUnicast": ("neighbor", False),
    "LinearMulticast": ("line", True),
    "LinearUnicast": ("line", False),
    "UnidirLinearMulticast": ("line_halves", True),
    "UnidirLinearUnicast": ("line_halves", False),
    "SingleSenderLinearUnicastAllDevices": ("one_to_all", False),
    "FullRingMulticast": ("full_ring", True),
    "FullRingUnicast": ("full_ring", False),
    "HalfRingMulticast": ("half_ring_by_turns", True),
    "HalfRingUnicast": ("half_ring_by_turns", False),
    "MeshMulticast": ("mesh_all", True),
    "SingleSenderMeshUnicastAllDevices": ("mesh_one_to_all", False),
}
PATTERNS_OF_GOLDEN = {
    "Linear": "line",
    "HalfRing": "half_ring_by_turns",
    "FullRing": "full_ring",
    "SaturateChipToChipRing": "saturate_ring",
    "RingAsLinear": "line_on_ring",
}
FORWARD_ONLY = {"line": "line_one_forward", "line_on_ring": "line_on_ring_forward"}
SPARE_SLOTS = {
    ("HalfRing", "t3k"): ("dateline", "adjacent"),
    ("HalfRing", "6u"): ("dateline", "upstream", "adjacent"),
    ("FullRing", ""): ("upstream", "adjacent"),
    ("SaturateChipToChipRing", ""): ("dateline",),
    ("RingAsLinear", ""): ("dateline", "upstream"),
}
"""What the published test sets by traffic and system (test_fabric_edm_common.hpp of tt-metal)."""
ALL_SENDERS = 3
"""Flows that the saturated link of a ring of 4 has each way."""
TOPOLOGY_NAMES = dict.fromkeys(("line_on_ring", "line_on_ring_halves", "line_on_ring_forward"), "ring_as_line")
"""Where rows do not call a topology as the fabric does."""
MESHES = {4: (2, 2), 8: (2, 4), 16: (4, 4), 32: (4, 8)}
"""Rows and columns, by chips; of other numbers no system is known."""
STATISTICS = ("busiest_link", "busiest_link_avg")
MOST_PAYLOAD = 4352
OLD, NEW = "2025-03", "2025-11"
PACKETS = 240
"""Over the busiest link in the longer of two runs; half as many in the other."""
MOST_CHIPS, MOST_LINKS, LEAST_PACKETS = 32, 4, 24


@dataclass(frozen=True)
class FabricCase(Case):
    """``pattern``: of ``PATTERNS``. ``shape``: rows and columns of a mesh, else 1 and chips. ``spare_slots``: as of
    ``tt.open_fabric``. ``counted``: flows over a link that a figure counts; None: those of the busiest. ``copies``:
    packets that are sent for each that it counts.
    """

    pattern: str = "line"
    is_multicast: bool = True
    ends_only: bool = False
    shape: tuple[int, int] = (1, 4)
    links: int = 1
    revision: str = NEW
    payload_bytes: int = 0
    command: str = "write"
    spare_slots: tuple[str, ...] = ROLES
    counted: float | None = None
    copies: int = 1

    @property
    def chips(self) -> int:
        """Of the fabric."""
        return self.shape[0] * self.shape[1]

    @property
    def topology(self) -> str:
        """Of the fabric."""
        if self.pattern == "neighbor":
            return "neighbor"
        if self.pattern.startswith("mesh"):
            return "mesh"
        return "ring" if "ring" in self.pattern else "line"

    @property
    def is_simulated(self) -> bool:
        """Whether its fabric can be: chips of a mesh have one link each way."""
        least = 3 if self.topology == "ring" else 2
        return least <= self.chips <= MOST_CHIPS and 1 <= self.links <= (1 if self.topology == "mesh" else MOST_LINKS)

    @property
    def farthest(self) -> int:
        """Hops of the longest route."""
        flows = (flow for workers in self.traffic() for each in workers for flow in each)
        return max(len(flow["ways"]) if "ways" in flow else flow["start"] + flow["number"] - 1 for flow in flows)

    def traffic(self) -> list[Workers]:
        """The flows of each chip."""
        chips, one_way = self.chips, self.pattern.endswith("_forward")
        line = Line(chips, self.is_multicast, self.ends_only, forward_only=one_way, links=self.links)
        if self.pattern == "mesh_one_to_all":
            return from_one_on_mesh(*self.shape)
        if self.pattern == "mesh_all":
            return all_on_mesh(*self.shape)
        if self.pattern == "one_to_all":
            return from_one(chips)
        if self.pattern == "neighbor":
            found = on_ring(line, 1, 1)
            found[0] = [[flow for flow in flows if flow["way"] == "E"] for flows in found[0]]
            found[-1] = [[flow for flow in flows if flow["way"] == "W"] for flows in found[-1]]
            return [[flows for flows in workers if flows] for workers in found]
        if self.topology == "ring" and not self.pattern.startswith("line_on_ring"):
            if self.pattern == "saturate_ring":
                return through_one_link(line)
            half = chips // 2
            hops = (chips - 1, chips - 1) if self.pattern == "full_ring" else (half, chips - 1 - half)
            return on_ring(line, *hops, by_turns=self.pattern.endswith("_by_turns"))
        ends_only = self.ends_only or self.pattern == "line_one_forward"
        return on_line(line._replace(ends_only=ends_only, halves=self.pattern.endswith("_halves")))


class FabricBandwidth(Bench[FabricCase]):
    """Rows ``busiest_link`` and ``busiest_link_avg`` in GB/s: bytes of payload over the link that most flows cross."""

    about: ClassVar[str] = "bytes a second over the busiest link of a fabric of data movers"
    families: ClassVar[tuple[str, ...]] = (*GOLDEN, *SUMMARY)
    sizes: ClassVar[tuple[int, ...]] = (16, 2048, 4096)

    def add_flags(self, group: "argparse._ArgumentGroup") -> None:
        group.add_argument("--pattern", choices=PATTERNS, default="line", help="which chips send to which (line)")
        group.add_argument("--chips", type=flag_types.IntRange(2, MOST_CHIPS), default=4, metavar="N", help="(4)")
        group.add_argument(
            "--rows", type=flag_types.IntRange(1, MOST_CHIPS), default=1, metavar="N", help="of a mesh (1)"
        )
        group.add_argument(
            "--links", type=flag_types.IntRange(1, MOST_LINKS), default=1, metavar="N", help="side by side (1)"
        )
        group.add_argument("--unicast", action="store_true", help="to the last chip alone, not to all on the way")
        group.add_argument("--command", choices=sorted(set(COMMANDS.values())), default="write", help="(write)")
        group.add_argument("--revision", default=NEW, metavar="NAME", help=f"of the fabric's protocol ({NEW})")
        group.add_argument(
            "--payload", type=flag_types.size, default=0, metavar="BYTES", help="of the longest packet (the chip's)"
        )

    def check(self, chosen: argparse.Namespace, machine: Machine) -> None:
        machine.check_fabric(chosen.revision, chosen.sizes, chosen.payload)

    def cases(self, chosen: argparse.Namespace) -> list[FabricCase]:
        if chosen.chips % chosen.rows:
            raise ConfigError(f"--rows {chosen.rows}: {chosen.chips} chips do not divide into so many")
        shape = (chosen.rows, chosen.chips // chosen.rows)
        return [
            FabricCase(
                chosen.pattern,
                sizes=(nbytes,),
                pattern=chosen.pattern,
                is_multicast=not chosen.unicast,
                shape=shape,
                links=chosen.links,
                revision=chosen.revision,
                payload_bytes=chosen.payload,
                command=chosen.command,
                spare_slots=("dateline",) if chosen.pattern == "saturate_ring" else ROLES,
            )
            for nbytes in chosen.sizes
        ]

    def claim(self, row: Published) -> Claim | None:
        command, nbytes = COMMANDS.get(row.message.lower()), row.nbytes or 0
        if command is None or row.metric != "GB/s" or row.statistic not in STATISTICS or nbytes < 1:
            return None
        case = self._golden(row, command) if row.family in GOLDEN else self._summary(row, command)
        if case is None or not case.is_simulated or nbytes > (case.payload_bytes or MOST_PAYLOAD):
            return None
        is_named = row.topology in ("", TOPOLOGY_NAMES.get(case.pattern, case.topology))
        return Claim(case, nbytes, row.statistic) if is_named and row.hops in (None, case.farthest) else None

    def measure(self, case: FabricCase, machine: Machine) -> list[Figure]:
        (nbytes,) = case.sizes
        traffic, columns = case.traffic(), case.shape[1] if case.topology == "mesh" else 0
        streams = busiest(traffic, columns)
        packets = max(PACKETS // streams // 2, LEAST_PACKETS)
        ended_ns = []
        sips, setting = ("tt_ring", f"system.sips.num_links={case.links}")
        if case.topology == "mesh":
            sips, setting = "mesh_2d_no_wrap", f"system.sips.shape=[{case.shape[1]},{case.shape[0]}]"
        fabric = {"topology": case.topology, "num_links": case.links, "revision": case.revision, "columns": columns}
        fabric |= {"payload_bytes": case.payload_bytes or None, "spare_slots": case.spare_slots}
        for count in (packets, 2 * packets):
            asked = {"fabric": fabric, "workers": traffic, "packets": count, "nbytes": nbytes, "command": case.command}
            told = machine.with_first(setting).run("fabric_traffic", case.chips, asked, topology=sips)
            ended_ns.append(max(each["ended_ns"] for each in told))
        counted = streams if case.counted is None else case.counted
        value = nbytes * packets * counted / case.copies / (ended_ns[1] - ended_ns[0])
        return [Figure(case.test, nbytes, "GB/s", statistic, value) for statistic in STATISTICS]

    def effort(self, case: FabricCase) -> float:
        return float(case.chips * case.links)

    def _golden(self, row: Published, command: str) -> FabricCase | None:
        found = re.fullmatch(r"(mcast|unicast)_([A-Za-z]+?)(?:_(\d+)x(\d+)_mesh)?(_single_worker_unidir)?", row.test)
        chips = whole(row.devices)
        if found is None or found[2] not in PATTERNS_OF_GOLDEN or not _has_line(found[3], found[4], chips):
            return None
        flags, is_alone = dict(re.findall(r"(\w+)=(\d)", row.note)), found[5] is not None
        ends_only = flags.get("disable_interior_workers", str(int(is_alone))) == "1"
        one_way = flags.get("senders_unidirectional", str(int(is_alone))) == "1"
        if is_alone and not (ends_only and one_way):
            return None
        pattern = PATTERNS_OF_GOLDEN[found[2]]
        is_line = pattern.startswith("line")
        if ends_only and not is_line:
            return None
        if is_line and one_way:
            pattern = FORWARD_ONLY[pattern] if ends_only else f"{pattern}_halves"
        system = "6u" if row.family.endswith("6u") else "t3k"
        spare_slots = SPARE_SLOTS.get((found[2], system), SPARE_SLOTS.get((found[2], ""), ()))
        counted = {"full_ring": chips - 1, "saturate_ring": ALL_SENDERS}.get(pattern, 1 if ends_only else chips / 2)
        return FabricCase(row.test, sizes=(row.nbytes or 0,), pattern=pattern, is_multicast=found[1] == "mcast",
                          ends_only=ends_only, shape=(1, chips), links=links_of(row), revision=OLD, command=command,
                          spare_slots=spare_slots, counted=counted,
                          copies=2 if "increment" in command else 1)  # fmt: skip

    def _summary(self, row: Published, command: str) -> FabricCase | None:
        custom = re.fullmatch(r"CustomMaxPacketSize(Linear|Mesh)\d+K", row.test)
        pattern, is_multicast = TESTS_OF_SUMMARY.get(row.test, ("", False))
        if custom:
            pattern = "one_to_all" if custom[1] == "Linear" else "mesh_one_to_all"
        is_mesh = pattern.startswith("mesh")
        chips = max(map(whole, row.devices.split(","))) if row.devices else 8 if is_mesh else 4
        shape = MESHES.get(chips) if is_mesh else (1, chips)
        if not pattern or shape is None or not all(map(whole, row.devices.split(",") if row.devices else ())):
            return None
        is_early = "early revision" in row.note
        payload = (row.nbytes or 0) if custom else 0
        return FabricCase(row.test, sizes=(row.nbytes or 0,), pattern=pattern, is_multicast=is_multicast,
                          shape=shape, links=links_of(row),
                          revision=NEW if is_early else newest(row),
                          payload_bytes=payload, command=command)  # fmt: skip


def _has_line(rows: str | None, columns: str | None, chips: int) -> bool:
    """Whether a mesh has a line or ring of so many chips: a row, a column or its border; 0 leaves a side open."""
    sides = int(rows or 0), int(columns or 0)
    return min(sides) == 0 or chips in (*sides, max(2 * sum(sides) - 4, *sides))


def newest(row: Published) -> str:
    """The revision of the protocol that a row of today measured."""
    return "2026" if row.architecture == "blackhole" else NEW


def links_of(row: Published) -> int:
    """Side by side; one where a row says nothing."""
    return 1 if row.links is None else row.links


def whole(text: str) -> int:
    """A count of a row; 0 where it is none."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 4 else 0


BENCHES.register("fabric-bandwidth")(FabricBandwidth())
