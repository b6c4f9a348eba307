"""HBM devices by name: organisation, timings with units and page policy, each with its source.

Sources: JEDEC JESD238 (HBM3) and JESD270-4 (HBM4) for organisation, burst length, tREFI and the kinds of timings; the
public timing sets ``HBM3_6400Mbps`` and ``HBM4_8000Mbps`` of Ramulator 2.1 for what the standards leave to vendors.
Marked *assumption* is what neither gives. All of a preset's times are in picoseconds, whole clocks at its data rate.

HBM3E is HBM3's protocol at 9.6 Gb/s a pin (Micron and SK hynix announce 9.2 to 9.8): analogue times as HBM3's in ns,
those in clocks as HBM3's in clocks; *assumption*, as vendors publish no timings of it.
"""

from typing import NamedTuple

Ps = int


class Timings(NamedTuple):
    """In ps. ``burst``: eight beats on the pseudo channel's data bus, which is tCCD_S. ``rtw``: from a read command to
    a write command; ``wtr``: from the end of written data to a read command; others as JEDEC calls them."""

    burst: Ps
    ccd_l: Ps
    rcd_read: Ps
    rcd_write: Ps
    rp: Ps
    ras: Ps
    rc: Ps
    cl: Ps
    cwl: Ps
    rtp: Ps
    wr: Ps
    rtw: Ps
    wtr: Ps
    rrd: Ps
    faw: Ps
    rfc: Ps
    refi: Ps


class Preset(NamedTuple):
    """A device. A pseudo channel is 32 bit wide and has ``groups * banks_per_group`` banks with rows of ``row_bytes``;
    the banks of all ranks (stack ids) count as one rank's.

    ``channel_bytes``: what a channel holds. ``page_policy``: ``open`` leaves a row open for the next access, ``closed``
    precharges after each. ``queue_bursts``: what the write queue of a pseudo channel holds. ``front_end``: the fixed
    path of a read through the controller, apart from the DRAM, in ps.
    """

    title: str
    timings: Timings
    groups: int
    banks_per_group: int
    row_bytes: int
    channel_bytes: int
    page_policy: str
    queue_bursts: int
    front_end: Ps


BURST_BYTES = 32
"""BL8 on 32 bit (JESD238, JESD270-4)."""
PSEUDO_CHANNELS = 2
"""Of a channel (JESD238, JESD270-4)."""
GIB = 1 << 30
QUEUE_BURSTS = 64
"""Assumption: 32 entries of 64 B, Ramulator's default write queue, for a pseudo channel."""
FRONT_END_PS = 48_000
"""Ramulator 2.1's latency of an unloaded channel, 99 ns (HBM3) and 94 ns (HBM4), less tRP + tRCD + tCL + burst of its
timing sets, 49.4 and 47.0 ns: what its test's front end and controller take. One value for all presets."""


def _clocks(tck: Ps, **counts: float) -> dict[str, Ps]:
    return {name: round(count * tck) for name, count in counts.items()}


def _hbm3_clocks(tck: Ps) -> dict[str, Ps]:
    """Those that HBM3 states in clocks: BL8 is two of them, tCCD_L is four."""
    return _clocks(tck, burst=2, ccd_l=4)


_HBM3_ANALOGUE = _clocks(
    625,
    rcd_read=31,
    rcd_write=15,
    rp=26,
    ras=45,
    rc=72,
    cl=20,
    cwl=10,
    rtp=9,
    wr=33,
    rtw=14,  # CL + BL + 2 - CWL
    wtr=12,  # tWTR_L; assumption: the longer one always, as the mapping spreads an access over all bank groups
    rrd=5,  # tRRD_L
    faw=24,
)
# tRFC: 350 ns for 1 GiB a channel (16 Gb dies, 8-high); tREFI: 3.9 us.
_HBM3 = Timings(**_hbm3_clocks(625), **_HBM3_ANALOGUE, rfc=350_000, refi=3_900_000)
_HBM3E_TCK = 417
_HBM3E = Timings(
    **_hbm3_clocks(_HBM3E_TCK),
    **{name: -(-ps // _HBM3E_TCK) * _HBM3E_TCK for name, ps in _HBM3_ANALOGUE.items()},
    rfc=350_000,
    refi=3_900_000,
)
# tRFC: 450 ns for 1 GiB a channel (32 Gb dies, 8-high: 32 channels of 1 GiB).
_HBM4 = Timings(
    **_clocks(
        500,
        burst=2,
        ccd_l=4,
        rcd_read=39,
        rcd_write=19,
        rp=33,
        ras=57,
        rc=90,
        cl=20,
        cwl=10,
        rtp=12,
        wr=42,
        rtw=25,
        wtr=13,
        rrd=7,
        faw=30,
    ),
    rfc=450_000,
    refi=3_900_000,
)

PRESETS: dict[str, Preset] = {
    "hbm3_6400": Preset("HBM3, 6.4 Gb/s a pin", _HBM3, 4, 8, 1024, GIB, "open", QUEUE_BURSTS, FRONT_END_PS),
    "hbm3e_9600": Preset("HBM3E, 9.6 Gb/s a pin", _HBM3E, 4, 8, 1024, GIB, "open", QUEUE_BURSTS, FRONT_END_PS),
    "hbm4_8000": Preset("HBM4, 8 Gb/s a pin", _HBM4, 2, 16, 1024, GIB, "open", QUEUE_BURSTS, FRONT_END_PS),
}
