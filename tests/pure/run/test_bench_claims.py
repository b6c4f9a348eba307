"""Which published rows benches of the fabric claim: other sizes, chips and links of a test, and nothing else."""

import csv
from pathlib import Path
from typing import Any

import pytest
from tenstorrent.rows import add_cases, request_of

from launcher.bench.base import Case, case_of, case_text
from launcher.bench.published import Published, default_files, read_published

NAMED = "disable_interior_workers={}; senders_unidirectional={}; GB/s = B/cycle at 1.0 GHz AICLK"
CLAIMED_ROWS = 296
"""Of the project's files, in families of these benches."""


def row_of(values: tuple[Any, ...], **more: Any) -> Published:
    family, test, metric, statistic = values
    numbers: dict[str, Any] = {"hops": None, "nbytes": 4096, "channels": None}
    named = {"architecture": "wormhole_b0", "family": family, "test": test, "metric": metric, "statistic": statistic}
    return Published(**{"id": "X1", "value": 1.0, "kind": "output", **numbers, **named, **more})


ROWS = {
    "golden": row_of(
        ("fabric_edm_bandwidth_6u", "mcast_Linear", "GB/s", "busiest_link"),
        topology="line", devices="4", links=1, message="noc_unicast_write", note=NAMED.format(0, 1),
    ),
    "summary": row_of(
        ("fabric_bandwidth_summary_t3k", "FullRingUnicast", "GB/s", "busiest_link_avg"),
        topology="ring", devices="8", links=1, message="NOC_UNICAST_WRITE", note="T3K; max_packet_size 4352",
    ),
    "one hop": row_of(
        ("fabric_latency_summary", "LatencyLinearUnicast", "ns", "net_avg_round_trip_1_hop_each_way"),
        topology="line", hops=2, channels=1, devices="8", links=1, message="NOC_UNICAST_WRITE",
    ),
    "far end": row_of(
        ("fabric_1d_latency", "test_1D_line_fabric_latency_on_uncongested_fabric", "ns", "mean_round_trip"),
        topology="line", hops=14, channels=1, devices="8", links=1,
    ),
    "slope": row_of(
        ("per_hop_forwarding_slope", "round_trip_slope", "ns", "slope_per_hop"), topology="line", hops=1, channels=1,
        nbytes=None,
    ),
    "mux": row_of(
        ("fabric_mux", "full_size_channels", "GB/s", "B/cycle at 1 GHz"), topology="mux", hops=0, channels=4,
        note="4 full-size + 0 header-only channels, 8 buffers/channel",
    ),
    "ccl": row_of(
        ("ccl_report_wormhole_b0", "all_gather", "us", "kernel_time"), topology="ring", hops=4, channels=1, nbytes=6144,
        devices="8", links=1, total_bytes=2**20, note="bf16 tile pages 2048 B, DRAM, fabric payload 6144 B",
    ),
}  # fmt: skip
RING = {"test": "test_1D_ring_fabric_latency_on_uncongested_fabric", "topology": "ring"}
MESH = {"test": "SingleSenderMeshUnicastAllDevices", "topology": "mesh"}
HALF_RING = {"test": "mcast_HalfRing", "topology": "ring"}
ALONE = {"test": "mcast_Linear_single_worker_unidir"}

CLAIMED: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    *((name, {}, {}) for name in ROWS),
    ("golden", {"devices": "32", "links": 4, "nbytes": 16}, {"shape": (1, 32), "links": 4, "sizes": (16,)}),
    ("golden", {"test": "mcast_Linear_0x4_mesh", "devices": "8"}, {"shape": (1, 8), "pattern": "line_halves"}),
    ("golden", {"test": "mcast_Linear_4x8_mesh", "devices": "8"}, {"shape": (1, 8), "counted": 4}),
    ("golden", {"test": "mcast_FullRing_4x8_mesh", "topology": "ring", "devices": "20"}, {"shape": (1, 20)}),
    (
        "golden",
        {**HALF_RING, "statistic": "busiest_link_avg", "hops": 2},
        {"pattern": "half_ring_by_turns", "counted": 2},
    ),
    ("golden", {**ALONE, "note": ""}, {"pattern": "line_one_forward", "counted": 1}),
    ("golden", {"test": "mcast_RingAsLinear", "topology": "ring_as_line"}, {"pattern": "line_on_ring_halves"}),
    ("golden", {"note": NAMED.format(1, 0)}, {"pattern": "line", "ends_only": True, "counted": 1}),
    ("golden", {"test": "mcast_FullRing", "topology": "ring"}, {"counted": 3, "spare_slots": ("upstream", "adjacent")}),
    ("golden", {"test": "mcast_SaturateChipToChipRing", "topology": "ring"}, {"counted": 3, "farthest": 4}),
    ("golden", {"message": "noc_unicast_flush_atomic_inc"}, {"command": "increment_flush", "copies": 2}),
    ("summary", {"test": "UnidirLinearMulticast", "topology": "line"}, {"pattern": "line_halves", "counted": None}),
    ("golden", {"message": "noc_unicast_scatter_write"}, {"command": "scatter"}),
    ("summary", {**MESH, "devices": "4"}, {"shape": (2, 2)}),
    ("summary", {**MESH, "devices": ""}, {"shape": (2, 4)}),
    ("summary", {**MESH, "devices": "32"}, {"shape": (4, 8)}),
    ("summary", {"test": "LinearMulticast", "topology": "line", "devices": "2,4"}, {"shape": (1, 4)}),
    ("summary", {"test": "CustomMaxPacketSizeLinear7K", "topology": "line", "nbytes": 7616}, {"payload_bytes": 7616}),
    ("one hop", {"devices": "32", "nbytes": 16, "links": None, "hops": None}, {"hops": 1, "chips": 4}),
    ("one hop", {"architecture": "blackhole", "devices": "32"}, {"is_half_rate": True}),
    ("far end", {"devices": "4", "hops": 6}, {"chips": 4, "hops": 3}),
    ("far end", {"devices": "4", "hops": 1, "statistic": "per_hop"}, {"chips": 4, "hops": 3}),
    ("far end", {**RING, "hops": 8, "nbytes": 0}, {"is_circuit": True, "sizes": (0,)}),
    ("slope", {"devices": "4"}, {"chips": 4, "hops": 3}),
    ("slope", {"topology": "mesh"}, {"chips": 8, "hops": 3}),
    ("mux", {"channels": 5, "note": "3 full-size + 2 header-only channels, 4 buffers/channel"}, {"headers": 2}),
    ("ccl", {"devices": "32", "hops": 16, "links": 4, "channels": 4}, {"chips": 32, "links": 4}),
    ("ccl", {"topology": "line", "hops": 7}, {"topology": "line"}),
    ("ccl", {"note": "", "statistic": "kernel_time_back_to_back"}, {"calls": 8}),
    ("ccl", {"note": "bf16, DRAM; total_bytes = un-sharded tensor T"}, {"calls": 1}),
]
NOT_CLAIMED: list[tuple[str, dict[str, Any]]] = [
    *(("golden", each) for each in (
        {"test": "mcast_Linear_4x8_mesh", "devices": "32"}, {"topology": "mesh"}, {"links": 0}, {"links": 5},
        {"devices": "33"}, {"devices": "1"}, {"devices": ""}, {"nbytes": 8192}, {"nbytes": None}, {"hops": 1},
        {"statistic": "least_link"}, {"metric": "Mpackets/s"}, {"message": "noc_read"}, {**HALF_RING, "devices": "2"},
        {**HALF_RING, "note": NAMED.format(1, 1)}, {**HALF_RING, "note": NAMED.format(1, 0)},
        {**ALONE, "note": NAMED.format(0, 1)}, {"test": "mcast_Torus"},
    )),
    *(("summary", each) for each in (
        {**MESH, "devices": "9"}, {**MESH, "links": 2}, {**MESH, "topology": "torus"}, {"devices": "2,many"},
        {"devices": "33"}, {"links": 0}, {"test": "AllToAll"}, {"devices": "2"}, {"nbytes": 5440},
    )),
    *(("one hop", each) for each in (
        {"hops": 4}, {"devices": "1"}, {"devices": "33"}, {"links": 2}, {"channels": 2}, {"topology": "ring"},
        {"statistic": "per_hop"}, {"message": "noc_unicast_scatter_write"}, {"nbytes": None}, {"nbytes": 8192},
    )),
    *(("far end", each) for each in (
        {"hops": 7}, {"hops": 14, "devices": "4"}, {"hops": 14, "statistic": "per_hop"}, {**RING, "hops": 14},
        {**RING, "hops": 2, "devices": "2"}, {"links": 2},
    )),
    *(("slope", each) for each in (
        {"hops": 3}, {"devices": "2"}, {"topology": "torus"}, {"topology": "mesh", "devices": "4"}, {"devices": "2,4"},
        {"topology": "mesh", "devices": "9"},
    )),
    *(("mux", each) for each in (
        {"hops": 3}, {"links": 2}, {"devices": "8"}, {"message": "noc_unicast_scatter_write"}, {"channels": 3},
        {"statistic": "packets"}, {"note": ""}, {"nbytes": 8192},
    )),
    *(("ccl", each) for each in (
        {"note": "bf16 tile pages 2048 B, L1 sharded"}, {"note": "bf16 tile pages 4096 B"}, {"note": "bf16; L1"},
        {"note": "bf16, fabric payload 4096 B"}, {"note": "bfp8, DRAM"}, {"hops": 7}, {"topology": "line"},
        {"channels": 2}, {"links": 0}, {"links": 5}, {"devices": "33"}, {"topology": "mesh"}, {"message": "fused"},
    )),
]  # fmt: skip


def asked(row: Published) -> Case | None:
    request = request_of(row)
    assert request.reason == ""
    return request.case


@pytest.mark.parametrize(("name", "changed", "fields"), CLAIMED, ids=str)
def test_other_rows_of_a_test_are_claimed(name: str, changed: dict[str, Any], fields: dict[str, Any]) -> None:
    case = asked(ROWS[name]._replace(**changed))
    assert case is not None
    assert {key: getattr(case, key) for key in fields} == fields


@pytest.mark.parametrize(("name", "changed"), NOT_CLAIMED, ids=str)
def test_what_would_be_simulated_otherwise_is_not_claimed(name: str, changed: dict[str, Any]) -> None:
    assert asked(ROWS[name]._replace(**changed)) is None


def test_rows_of_the_project_that_are_claimed() -> None:
    rows = [row for path in default_files() for row in read_published(path)]
    claimed = [row for row in rows if row.family.startswith(("fabric", "per_hop", "ccl")) and asked(row) is not None]
    assert len(claimed) == CLAIMED_ROWS


def test_the_column_case_of_the_project_is_what_the_rules_say() -> None:
    """Else: ``python scripts/validate_tenstorrent.py --add-cases`` writes it anew."""
    for path in default_files():
        for row in read_published(path, with_cases=True):
            bench, _, case, _ = request_of(row)
            assert (row.id, row.case) == (row.id, "" if case is None else case_text(bench, case))
            assert case is None or case_of(row.case) == (bench, case)


def test_cases_are_added_to_a_file_and_nothing_else_changes(tmp_path: Path) -> None:
    for path in default_files():
        copy = tmp_path / path.name
        with path.open(newline="") as whole, copy.open("w", newline="") as bare:
            csv.writer(bare, lineterminator="\n").writerows(cells[:-1] for cells in csv.reader(whole))
        add_cases(copy)
        assert copy.read_text() == path.read_text()


@pytest.mark.parametrize(
    "text",
    [
        "nobody {}",
        "this.x {}",
        "eth-ping {",
        "eth-ping []",
        "eth-ping {}",
        'eth-ping {"test": "a", "sizes": "ab"}',
        'eth-ping {"test": "a", "sizes": [true]}',
        f"eth-ping {'[' * 99999}",
        'eth-ping {"test": {}}',
        'ccl {"a": 1}',
    ],
)
def test_a_case_that_cannot_be_read_is_one_line(text: str) -> None:
    with pytest.raises(ValueError, match=r"^case '.*' cannot be read: [^\n]+$"):
        case_of(text)


def test_a_case_names_no_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is text of a file: what a registry would import under a dotted name must not run."""
    (tmp_path / "lab_of_a_cell").mkdir()
    (tmp_path / "lab_of_a_cell" / "bench.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ValueError, match="there is no bench"):
        case_of("lab_of_a_cell.bench {}")
    assert not (tmp_path / "ran").exists()


def test_cells_without_a_column_stay(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text(
        "id,arch,family,test,hops,packet_size_bytes,channels,metric,value,kind,statistic\nA1,x,f,t,,,,ns,1,input,s,more\n"
    )
    add_cases(path)
    assert path.read_text().splitlines()[1] == "A1,x,f,t,,,,ns,1,input,s,,more"
