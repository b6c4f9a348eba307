"""Link kinds: bytes on the wire, times and the least chunk, by values computed by hand."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sipsim.chips.config import load
from sipsim.core.registry import UnknownName
from sipsim.fabric.links.kind import LINK_KINDS, AnyLinkKind, link_of_preset

CROSSING = {"fdi_to_fdi_ns": 2, "reach_mm": 0, "ns_per_mm": 0.0067, "retimers": 2, "retimer_ns": 4}


def ucie(**changes: float | None) -> AnyLinkKind:
    return LINK_KINDS.get("ucie")(
        **{"bandwidth_GBps": 64, **CROSSING, "flit_bytes": 256, "flit_overhead_bytes": 16, **changes}
    )


FRAME = {
    "min_frame_bytes": 0,
    "preamble_bytes": 8,
    "header_bytes": 14,
    "stream_header_bytes": 12,
    "fcs_bytes": 4,
    "gap_bytes": 12,
    "forwarding": "cut_through",
}
PADDED = {"min_frame_bytes": 64, "forwarding": "store_and_forward"}


def ethernet(**changes: float | str) -> AnyLinkKind:
    return LINK_KINDS.get("ethernet")(
        **{"bandwidth_GBps": 12.5, "latency_ns": 500, "max_payload_bytes": 1500, **FRAME, **changes}
    )


@pytest.mark.parametrize(
    ("payload", "wire"), [(1, 256), (239, 256), (240, 256), (241, 512), (480, 512), (481, 768), (4096, 18 * 256)]
)
def test_ucie_wire_bytes(payload: int, wire: int) -> None:
    """A flit carries 240 B and is sent whole."""
    assert ucie().wire_bytes(payload) == wire


@pytest.mark.parametrize(
    ("payload", "wire"), [(1, 51), (1499, 1549), (1500, 1550), (1501, 1601), (3000, 3100), (3001, 3151), (65536, 67736)]
)
def test_ethernet_wire_bytes(payload: int, wire: int) -> None:
    """Each packet of at most 1500 B costs 50 B more."""
    assert ethernet().wire_bytes(payload) == wire


@pytest.mark.parametrize(
    ("payload", "wire"),
    [
        (1, 84),
        (16, 84),
        (34, 84),
        (35, 85),
        (1500, 1550),
        (1501, 1550 + 84),
        (1534, 1550 + 84),
        (1535, 1550 + 85),
        (3000, 3100),
        (3001, 3100 + 84),
    ],
)
def test_a_short_frame_is_padded_to_64_bytes(payload: int, wire: int) -> None:
    """64 hold 14 of header, 12 of the stream's, 34 of payload and 4 of FCS; preamble and gap are 20 more, not less."""
    assert ethernet(**PADDED).wire_bytes(payload) == wire


@pytest.mark.parametrize(
    ("payload", "picoseconds"), [(1, 84 * 80), (34, 84 * 80), (100, 150 * 80), (1500, 1550 * 80), (65536, 1550 * 80)]
)
def test_what_is_stored_is_one_frame(payload: int, picoseconds: int) -> None:
    """Of several the first one, which is full. A byte takes 80 ps."""
    assert ethernet(**PADDED).stored_ps(payload) == picoseconds
    assert ethernet().stored_ps(payload) == 0
    assert ucie().stored_ps(payload) == 0


def test_the_fields_may_be_one_sum_as_before() -> None:
    """50 B a packet, whatever they are for."""
    none = {"preamble_bytes": 0, "header_bytes": 50, "stream_header_bytes": 0, "fcs_bytes": 0, "gap_bytes": 0}
    for payload in (1, 34, 1499, 1500, 1501, 65536):
        assert ethernet(**none).wire_bytes(payload) == ethernet().wire_bytes(payload)


@pytest.mark.parametrize("name", ["tenstorrent_100g", "tenstorrent_200g", "tenstorrent_400g"])
def test_packets_of_tenstorrent(name: str) -> None:
    """Payloads of 16 to 1500 B, a shorter one padded to 16, and 50 B more each."""
    link = link_of_preset(load(), name)
    assert [link.wire_bytes(payload) for payload in (1, 15, 16, 17)] == [66, 66, 66, 67]
    assert [link.wire_bytes(payload) for payload in (1500, 1501, 1517, 3000)] == [1550, 1616, 1617, 3100]
    for payload in range(1, 4600, 7):
        packets = [min(1500, payload - at) for at in range(0, payload, 1500)]
        assert link.packets(payload) == [max(each, 16) + 50 for each in packets]
        assert link.wire_bytes(payload) == sum(link.packets(payload))


def test_ethernet_counts_packets_of_a_64K_transfer() -> None:
    """44 packets: 43 full ones and one of 1036 B."""
    assert ethernet().wire_bytes(65536) - 65536 == 44 * 50


@pytest.mark.parametrize(
    ("link", "payload", "picoseconds"),
    [
        (ucie(), 240, 4000),
        (ucie(), 241, 8000),
        (ethernet(), 1500, 124_000),
        (ethernet(bandwidth_GBps=50), 1500, 31_000),
        (ethernet(bandwidth_GBps=3), 1, 17_000),
    ],
)
def test_drain_counts_framing(link: AnyLinkKind, payload: int, picoseconds: int) -> None:
    assert link.drain_ps(payload) == picoseconds


@pytest.mark.parametrize(("link", "picoseconds"), [(ucie(), 4000), (ethernet(), 4080)])
def test_the_least_chunk_of_256_bytes_is_that_of_a_byte(link: AnyLinkKind, picoseconds: int) -> None:
    assert link.least_chunk_ps(256) == picoseconds


@given(st.integers(1, 10**6), st.integers(1, 10**6), st.sampled_from([ucie(), ethernet(), ethernet(**PADDED)]))
def test_more_payload_never_takes_fewer_wire_bytes(one: int, two: int, link: AnyLinkKind) -> None:
    assert one <= link.wire_bytes(one)
    assert link.wire_bytes(min(one, two)) <= link.wire_bytes(max(one, two))


def test_units_of_the_parameters() -> None:
    assert (ucie().latency_ps, ucie().bandwidth_bps) == (10_000, 64 * 10**9)
    assert (ethernet().latency_ps, ethernet().bandwidth_bps) == (500_000, 12_500_000_000)


@pytest.mark.parametrize(
    ("changes", "latency_ps"),
    [
        # Two retimers of 4 ns, and 2 ns from FDI to FDI.
        ({}, 10_000),
        # In one package, 20 mm at 6.7 ps a mm.
        ({"retimers": 0, "reach_mm": 20}, 2_134),
        ({"fdi_to_fdi_ns": 0, "retimers": 3, "reach_mm": 1000}, 18_700),
    ],
)
def test_ucie_latency_is_a_crossing_its_channel_and_its_retimers(changes: dict[str, float], latency_ps: int) -> None:
    link = ucie(**changes)
    assert link.latency_ps == latency_ps == sum(part.ps for part in link.latency_parts())
    assert [part.key for part in link.latency_parts()] == ["fdi_to_fdi_ns", "ns_per_mm", "retimer_ns"]


@pytest.mark.parametrize("payload", [1, 240, 241, 4096])
def test_ucie_without_flits_is_as_long_as_its_payload(payload: int) -> None:
    assert ucie(flit_bytes=None).wire_bytes(payload) == payload


def test_ucie_flit_must_have_room() -> None:
    with pytest.raises(ValueError, match=r"flit_overhead_bytes must be less than flit_bytes \(256\)"):
        ucie(flit_overhead_bytes=256)


def test_kinds_are_found_by_name() -> None:
    assert LINK_KINDS.names() == ["ethernet", "ucie"]
    with pytest.raises(UnknownName, match="unknown link kind 'ethernt'; did you mean 'ethernet'"):
        LINK_KINDS.get("ethernt")
