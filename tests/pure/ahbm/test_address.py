"""Physical addresses and the regions of a TCM, by values computed by hand and by round trips."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sipsim.chips.ahbm.address import MIB, SPACES, VIRTUAL_BIT, PhysAddr, Region, tcm_map
from sipsim.config.schema import TcmLayout
from sipsim.core.errors import ConfigError

places = st.builds(
    PhysAddr,
    st.integers(0, 2**11 - 1),
    st.integers(0, 2**8 - 1),
    st.integers(0, 2**6 - 1),
    st.sampled_from(SPACES),
    st.integers(0, 2**36 - 1),
)


@given(places)
def test_round_trip(place: PhysAddr) -> None:
    assert PhysAddr.decode(place.encode()) == place
    assert 0 <= place.encode() < VIRTUAL_BIT


@given(places, places)
def test_two_places_never_share_an_address(one: PhysAddr, two: PhysAddr) -> None:
    assert (one.encode() == two.encode()) == (one == two)


@given(places, st.integers(1, 255))
def test_the_next_byte_has_the_next_address(place: PhysAddr, step: int) -> None:
    """Kernels do arithmetic on addresses."""
    if place.offset + step < 2**36:
        assert PhysAddr.decode(place.encode() + step) == place._replace(offset=place.offset + step)


@pytest.mark.parametrize(
    ("place", "address"),
    [
        (PhysAddr(0, 0, 0, "tcm", 0), 0),
        (PhysAddr(0, 0, 0, "hbm", 0), 0x10_0000_0000),
        (PhysAddr(0, 0, 0, "sram", 5), 0x20_0000_0005),
        (PhysAddr(0, 0, 1, "tcm", 0), 0x40_0000_0000),
        (PhysAddr(0, 1, 0, "tcm", 0), 0x1000_0000_0000),
        (PhysAddr(1, 0, 0, "tcm", 0), 0x10_0000_0000_0000),
        (PhysAddr(2047, 255, 63, "sram", 2**36 - 1), 0x7FFF_FFEF_FFFF_FFFF),
    ],
)
def test_layout_of_the_bits(place: PhysAddr, address: int) -> None:
    """The layout is in digests and op logs."""
    assert place.encode() == address


@pytest.mark.parametrize(
    ("field", "value", "bits"),
    [("sip", 2048, 11), ("cube", 256, 8), ("pe", 64, 6), ("offset", 2**36, 36), ("sip", -1, 11), ("offset", -1, 36)],
)
def test_a_field_that_does_not_fit(field: str, value: int, bits: int) -> None:
    place = PhysAddr(0, 0, 0, "hbm", 0)._replace(**{field: value})
    with pytest.raises(ValueError, match=rf"^{field} {value} does not fit a physical address \({bits} bits\)$"):
        place.encode()


@pytest.mark.parametrize("address", [VIRTUAL_BIT, VIRTUAL_BIT + 4096, 2**64, 2**70, -1])
def test_an_address_that_is_not_physical(address: int) -> None:
    with pytest.raises(ValueError, match="is not a physical address"):
        PhysAddr.decode(address)


def test_an_unknown_space() -> None:
    with pytest.raises(ValueError, match=r"^0x3000000000 names no memory space$"):
        PhysAddr.decode(3 << 36)


def test_text() -> None:
    """As in error messages."""
    assert str(PhysAddr(1, 2, 3, "hbm", 255)) == "sip1.cube2.pe3.hbm+0xff"


def test_tcm_regions() -> None:
    """ADR-0023 D20: kernel memory 0 to 14 MiB, rings to 15, scratch to 16."""
    regions = tcm_map(TcmLayout(kernel_MiB=14, ipcq_MiB=1, scratch_MiB=1, handles_take_room=False))
    assert regions == (Region(0, 14 * MIB), Region(14 * MIB, MIB), Region(15 * MIB, MIB))
    assert regions.size == 16 * MIB


@given(st.integers(1, 1024), st.integers(1, 1024), st.integers(0, 1024))
def test_tcm_regions_fill_it_without_holes(kernel: int, ipcq: int, scratch: int) -> None:
    regions = tcm_map(TcmLayout(kernel_MiB=kernel, ipcq_MiB=ipcq, scratch_MiB=scratch, handles_take_room=False))
    ends = [region.offset + region.size for region in regions]
    assert [region.offset for region in regions] == [0, *ends[:-1]]
    assert regions.size == ends[-1] == (kernel + ipcq + scratch) * MIB


def test_metadata_of_queue_pairs_fit_their_region() -> None:
    """ADR-0023 D20, D21: 72 B each, so 14,563 in 1 MiB."""
    regions = tcm_map(TcmLayout(kernel_MiB=14, ipcq_MiB=1, scratch_MiB=1, handles_take_room=False))
    regions.check_queue_pairs(14_563, "a PE")
    with pytest.raises(ConfigError, match="a PE has 14564 queue pairs"):
        regions.check_queue_pairs(14_564, "a PE")
