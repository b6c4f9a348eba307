"""The rules by which published rows become cases of benches, and the column ``case`` that keeps them.

A rule looks at what a row says was measured, never at its value or its id: rules meet rows of files that nobody here
has seen, with sizes, counts and notes of their own. A rule looks at all that would change the result, and gives None
for what no bench simulates; such a row counts as a miss. Whatever a row leaves out is None or "". A row's figure is
that of its case, first size, statistic and metric.
"""

import csv
import io
import re
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from launcher.bench.base import Case, case_text
from launcher.bench.benches.ccl import CALLS, PAGE_BYTES, CclCase
from launcher.bench.benches.ethernet import BANDWIDTH_TEST, IN_A_LOOP, MOST_HOPS, PHASES, PING_LOOP, ROUND_TRIP, TESTS
from launcher.bench.benches.fabric import (
    COMMANDS,
    MOST_CHANNELS,
    MOST_CHIPS,
    MOST_PAYLOAD,
    MOST_SLOTS,
    MUX_STATISTIC,
    NET_STATISTIC,
    NEW,
    OLD,
    ONE_LINE,
    ONE_RING,
    SLOPE,
    STATISTICS,
    TOPOLOGIES,
    FabricCase,
    LatencyCase,
    MuxCase,
)
from launcher.bench.machine import ARCHITECTURES, can_send
from launcher.bench.published import CASE, TO_REPRODUCE, Published, read_published
from sipsim.core.errors import ConfigError

CHIPS = {architecture: chip for chip, architecture in ARCHITECTURES.items()}
GOLDEN = ("fabric_edm_bandwidth_t3k", "fabric_edm_bandwidth_6u", "fabric_edm_bandwidth_wh8", "fabric_edm_bandwidth_bh")
SUMMARY = (
    "fabric_bandwidth_summary_t3k",
    "fabric_bandwidth_summary_whgalaxy",
    "fabric_bandwidth_summary_bh_p150",
)


class Request(NamedTuple):
    """What a row asks of a bench on a chip. ``case`` is None where no bench simulates it; ``reason`` may say why."""

    bench: str
    chip: str
    case: Case | None
    reason: str = ""


def request_of(row: Published) -> Request:
    """What a row asks for. A rule that cannot make sense of a row gives no case."""
    chip = CHIPS.get(row.architecture, "")
    if row.kind != TO_REPRODUCE or not chip or row.problem:
        return Request("", chip, None, row.problem)
    for bench, (families, rule) in RULES.items():
        if row.family not in families:
            continue
        try:
            case = rule(row)
        except Exception as problem:  # A row of a file that nobody has seen; no other row may suffer.
            return Request(bench, chip, None, first_line(f"{type(problem).__name__}: {problem}"))
        if case is not None:
            return Request(bench, chip, case)
    return Request("", chip, None)


def first_line(text: str) -> str:
    """The first line of a text that says something."""
    return next((line.strip() for line in text.splitlines() if line.strip()), "failed without a message")


def add_cases(path: Path) -> None:
    """Write the column ``case`` of a table of published figures anew; its other cells stay as they are.

    Raises:
        ConfigError: for what is no table of figures.
    """
    cases = {row.id: request_of(row) for row in read_published(path)}
    header, *lines = filter(None, csv.reader(io.StringIO(path.read_text(encoding="utf-8-sig"), newline="")))
    place = header.index(CASE) if CASE in header else len(header)
    column, id_place = slice(place, place + (CASE in header)), header.index("id")
    header[column] = [CASE]
    for cells in lines:
        cells += [""] * (place - len(cells))
        bench, _, case, _ = cases[cells[id_place]]
        cells[column] = ["" if case is None else case_text(bench, case)]
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows([header, *lines])
    try:
        path.write_text(out.getvalue(), encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written: {error.strerror}") from None


def _eth_bandwidth(row: Published) -> Case | None:
    if BANDWIDTH_TEST.fullmatch(row.test) is None or row.statistic != "per_direction":
        return None
    return _of_link(row, row.test)


def _of_link(row: Published, test: str) -> Case | None:
    """The case of a row of one link, to be measured as ``test``."""
    nbytes, channels = row.nbytes or 0, 1 if row.channels is None else row.channels
    if (row.hops or 1) != 1 or not can_send(nbytes, channels):
        return None
    return Case(test, channels, sizes=(nbytes,))


def _eth_ping(row: Published) -> Case | None:
    if PHASES.get(row.test) == row.statistic:
        return _of_link(row, ROUND_TRIP) if row.channels in (None, 1) else None
    is_loop = PING_LOOP.fullmatch(row.test) is not None and row.statistic == IN_A_LOOP
    return _of_link(row, row.test) if is_loop else None


def _ring_latency(row: Published) -> Case | None:
    hops, nbytes = row.hops or 1, row.nbytes or 0
    channels = 1 if row.channels is None else row.channels
    if row.test not in TESTS or not 2 <= hops <= MOST_HOPS or not can_send(nbytes, channels):
        return None
    if row.statistic not in ("per_hop", f"total_{hops}_hops"):
        return None
    return Case(row.test, channels, hops, (nbytes,))


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


def _fabric_bandwidth(row: Published) -> Case | None:
    command, nbytes = COMMANDS.get(row.message.lower()), row.nbytes or 0
    if command is None or row.metric != "GB/s" or row.statistic not in STATISTICS or nbytes < 1:
        return None
    case = _golden(row, command) if row.family in GOLDEN else _summary(row, command)
    if case is None or not case.is_simulated or nbytes > (case.payload_bytes or MOST_PAYLOAD):
        return None
    is_named = row.topology in ("", TOPOLOGY_NAMES.get(case.pattern, case.topology))
    return case if is_named and row.hops in (None, case.farthest) else None


def _golden(row: Published, command: str) -> FabricCase | None:
    found = re.fullmatch(r"(mcast|unicast)_([A-Za-z]+?)(?:_(\d+)x(\d+)_mesh)?(_single_worker_unidir)?", row.test)
    chips = _whole(row.devices)
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
                      ends_only=ends_only, shape=(1, chips), links=_links_of(row), revision=OLD, command=command,
                      spare_slots=spare_slots, counted=counted,
                      copies=2 if "increment" in command else 1)  # fmt: skip


def _summary(row: Published, command: str) -> FabricCase | None:
    custom = re.fullmatch(r"CustomMaxPacketSize(Linear|Mesh)\d+K", row.test)
    pattern, is_multicast = TESTS_OF_SUMMARY.get(row.test, ("", False))
    if custom:
        pattern = "one_to_all" if custom[1] == "Linear" else "mesh_one_to_all"
    is_mesh = pattern.startswith("mesh")
    chips = max(map(_whole, row.devices.split(","))) if row.devices else 8 if is_mesh else 4
    shape = MESHES.get(chips) if is_mesh else (1, chips)
    if not pattern or shape is None or not all(map(_whole, row.devices.split(",") if row.devices else ())):
        return None
    is_early = "early revision" in row.note
    payload = (row.nbytes or 0) if custom else 0
    return FabricCase(row.test, sizes=(row.nbytes or 0,), pattern=pattern, is_multicast=is_multicast,
                      shape=shape, links=_links_of(row),
                      revision=NEW if is_early else _newest(row),
                      payload_bytes=payload, command=command)  # fmt: skip


def _has_line(rows: str | None, columns: str | None, chips: int) -> bool:
    """Whether a mesh has a line or ring of so many chips: a row, a column or its border; 0 leaves a side open."""
    sides = int(rows or 0), int(columns or 0)
    return min(sides) == 0 or chips in (*sides, max(2 * sum(sides) - 4, *sides))


def _newest(row: Published) -> str:
    """The revision of the protocol that a row of today measured."""
    return "2026" if row.architecture == "blackhole" else NEW


def _links_of(row: Published) -> int:
    """Side by side; one where a row says nothing."""
    return 1 if row.links is None else row.links


def _whole(text: str) -> int:
    """A count of a row; 0 where it is none."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 4 else 0


NET = {"LatencyLinearUnicast": "line", "LatencyRingUnicast": "ring", "LatencyMeshUnicast": "mesh"}
HALF_RATE_GALAXY = 32
"""Chips of a Galaxy, whose Blackhole links run at half their rate (TT0689)."""
LEAST_CHIPS = {"line": 2, "ring": 3, "mesh": 4}
SLOPE_BYTES, SLOPE_CHIPS = 16, 8


def _fabric_latency(row: Published) -> Case | None:
    is_one = _links_of(row) == 1 and row.channels in (None, 1)
    if row.metric != "ns" or not is_one or (row.nbytes or 0) > MOST_PAYLOAD:
        return None
    find = _slope if row.test == SLOPE else _around if row.test in (ONE_LINE, ONE_RING) else _one_hop
    return find(row, _whole(row.devices))


def _slope(row: Published, chips: int) -> LatencyCase | None:
    chips, nbytes = chips if row.devices else SLOPE_CHIPS, SLOPE_BYTES if row.nbytes is None else row.nbytes
    is_mesh = row.topology == "mesh"
    hops = chips // 2 - 1 if is_mesh else chips - 1
    is_claimed = row.statistic == "slope_per_hop" and row.topology in TOPOLOGIES and row.hops in (None, 1)
    if not is_claimed or row.message or hops < 2 or chips > MOST_CHIPS or (is_mesh and chips % 2):
        return None
    return LatencyCase(row.test, hops=hops, sizes=(nbytes,), topology=row.topology, chips=chips, revision=_newest(row))


def _around(row: Published, chips: int) -> LatencyCase | None:
    """To the far end of a line and back, or once around a ring."""
    topology = "ring" if row.test == ONE_RING else "line"
    hops = {"mean_round_trip": chips if topology == "ring" else 2 * (chips - 1), "per_hop": 1}.get(row.statistic)
    if hops is None or row.hops not in (None, hops) or row.topology not in ("", topology) or row.nbytes is None:
        return None
    if not LEAST_CHIPS[topology] <= chips <= MOST_CHIPS:
        return None
    return LatencyCase(row.test, hops=chips - 1, sizes=(row.nbytes,), topology=topology, chips=chips,
                       is_circuit=topology == "ring", revision=OLD)  # fmt: skip


def _one_hop(row: Published, chips: int) -> LatencyCase | None:
    """There and back over one hop: it is the same between any two neighbours."""
    command, topology = COMMANDS.get(row.message.lower()), NET.get(row.test)
    if topology is None or row.topology not in ("", topology) or command not in ("write", "fused"):
        return None
    if row.statistic != NET_STATISTIC or row.hops not in (None, 2) or row.nbytes is None:
        return None
    if not LEAST_CHIPS[topology] <= chips <= MOST_CHIPS:
        return None
    is_half_rate = row.architecture == "blackhole" and chips == HALF_RATE_GALAXY
    return LatencyCase(row.test, sizes=(row.nbytes,), topology=topology, chips=4, revision=_newest(row),
                       command=command, is_half_rate=is_half_rate)  # fmt: skip


def _fabric_mux(row: Published) -> Case | None:
    found = re.fullmatch(r"(\d+) full-size \+ (\d+) header-only channels, (\d+) buffers/channel", row.note)
    if found is None or row.metric != "GB/s" or row.nbytes is None or not 16 <= row.nbytes <= MOST_PAYLOAD:
        return None
    full, headers, slots = map(int, found.groups())
    is_plain = row.statistic == MUX_STATISTIC and (row.message.lower() or "noc_unicast_write") == "noc_unicast_write"
    if not is_plain or row.devices not in ("", "2") or row.links not in (None, 1) or (row.hops or 0) > 1:
        return None
    if row.channels not in (None, full, full + headers):
        return None
    if not 1 <= full <= full + headers <= MOST_CHANNELS or not 1 <= slots <= MOST_SLOTS:
        return None
    return MuxCase(row.test, full, 0, (row.nbytes,), headers, slots, OLD)


PLAIN_NOTES, OF_TOTALS = ("", "bf16", f"bf16 tile pages {PAGE_BYTES} B", "DRAM"), "total_bytes ="
"""What a row's note may say of pages and where they are; what it says of its column of bytes changes nothing."""


def _ccl(row: Published) -> Case | None:
    calls, total = CALLS.get(row.statistic), row.total_bytes
    if calls is None or total is None or row.metric != "us" or not row.devices.isdecimal():
        return None
    case = CclCase(
        row.test,
        sizes=(total,),
        topology=row.topology,
        chips=int(row.devices),
        links=1 if row.links is None else row.links,
        packet_bytes=row.nbytes or 0,
        calls=calls,
    )
    if case.problem() or case.packet_bytes < PAGE_BYTES or row.channels not in (None, 1, case.links) or row.message:
        return None
    if row.hops not in (None, case.farthest) or not _is_plain(row.note, case.packet_bytes):
        return None
    return case


def _is_plain(note: str, packet_bytes: int) -> bool:
    """Whether a row's note says nothing but what is simulated: pages of bf16 in DRAM, and that packet."""
    said, *rest = (each.strip() for each in note.split(";"))
    known = (*PLAIN_NOTES, f"fabric payload {packet_bytes} B")
    return all(each.strip() in known for each in said.split(",")) and all(each.startswith(OF_TOTALS) for each in rest)


Rule = Callable[[Published], Case | None]
RULES: dict[str, tuple[tuple[str, ...], Rule]] = {
    "ccl": (
        (
            "ccl_report_wormhole_b0",
            "ccl_report_blackhole",
            "ccl_report_back_to_back",
            "galaxy_llama_targets",
            "bh_user_reports",
        ),
        _ccl,
    ),
    "eth-bandwidth": (("eth_link_bandwidth_no_edm",), _eth_bandwidth),
    "eth-ping": (("eth_link_latency_no_edm", "seed_ubench"), _eth_ping),
    "fabric-bandwidth": ((*GOLDEN, *SUMMARY), _fabric_bandwidth),
    "fabric-latency": (("fabric_1d_latency", "fabric_latency_summary", "per_hop_forwarding_slope"), _fabric_latency),
    "fabric-mux": (("fabric_mux",), _fabric_mux),
    "ring-latency": (("seed_ubench",), _ring_latency),
}
"""By bench: the families of rows that it simulates, and the rule."""
