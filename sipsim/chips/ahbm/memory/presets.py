"""HBM devices by name, from ``configs/hbm.yaml``: rate, organisation, timings and page policy."""

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

from msgspec import Meta
from msgspec.structs import asdict

from sipsim.config.check import Problem, convert_part, no_power_of_two, refused
from sipsim.config.load import default_dir
from sipsim.config.schema import NonNegative, Positive, Section
from sipsim.config.yaml import one_line, read_mapping, shown_path
from sipsim.core.errors import ConfigError
from sipsim.core.units import PS_PER_NS, ns_to_ps

Ps = int
Clock = Annotated[int, Meta(ge=1, le=1024)]
Few = Annotated[int, Meta(ge=1, le=1024)]

BURST_BYTES = 32
"""Bytes of a burst: BL8 on 32 bit (JESD238, JESD270-4)."""
PSEUDO_CHANNELS = 2
"""Pseudo channels per channel of 64 bit (JESD238, JESD270-4)."""
CHANNEL_BITS = 64
FILE = "hbm.yaml"


class Timings(NamedTuple):
    """Timings of a device in ps: the timings of :class:`Clocks`, tRFC and tREFI."""

    burst: Ps
    ccd_l: Ps
    rcd_read: Ps
    rcd_write: Ps
    rp: Ps
    rc: Ps
    cl: Ps
    cwl: Ps
    wr: Ps
    rtw: Ps
    wtr: Ps
    rrd: Ps
    faw: Ps
    rfc: Ps
    refi: Ps


class Clocks(Section, frozen=True):
    """Section ``clocks``: JEDEC timings in clocks. ``burst``: eight beats on a pseudo channel's data bus, equal to
    tCCD_S. ``rtw``: from a read command to a write command. ``wtr``: from the end of written data to a read
    command.
    """

    burst: Clock
    ccd_l: Clock
    rcd_read: Clock
    rcd_write: Clock
    rp: Clock
    rc: Clock
    cl: Clock
    cwl: Clock
    wr: Clock
    rtw: Clock
    wtr: Clock
    rrd: Clock
    faw: Clock


class Preset(Section, frozen=True):
    """HBM device. A pseudo channel is 32 bit wide and has ``groups * banks_per_group`` banks of ``row_bytes`` per row;
    the banks of all ranks (stack ids) count as one rank.

    ``stack_channels``: 64 bit channels of a stack, with ``pin_Gbps`` per pin and ``channel_MiB`` each. ``page_policy``:
    ``open`` leaves a row open for the next access, ``closed`` precharges after each. ``queue_bursts``: size of a pseudo
    channel's write queue. ``front_end_ns``: fixed latency of a read through the controller, without the DRAM.
    """

    pin_Gbps: Positive
    stack_channels: Few
    clock_ps: Annotated[int, Meta(ge=1, le=10**6)]
    clocks: Clocks
    rfc_ns: NonNegative
    refi_ns: NonNegative
    groups: Few
    banks_per_group: Few
    row_bytes: Annotated[int, Meta(ge=BURST_BYTES, le=2**20)]
    channel_MiB: Annotated[int, Meta(ge=1, le=2**20)]
    page_policy: Literal["open", "closed"]
    queue_bursts: Annotated[int, Meta(ge=1, le=65536)]
    front_end_ns: NonNegative

    @property
    def timings(self) -> Timings:
        """Timings in ps."""
        in_ps = {name: count * self.clock_ps for name, count in asdict(self.clocks).items()}
        return Timings(**in_ps, rfc=ns_to_ps(self.rfc_ns), refi=ns_to_ps(self.refi_ns))

    @property
    def stack_GBps(self) -> float:
        """Published bandwidth of a stack, in GB/s."""
        return self.pin_Gbps * CHANNEL_BITS * self.stack_channels / 8


@cache
def presets() -> Mapping[str, Preset]:
    """Return the devices of the default file."""
    return read_presets(default_dir() / FILE)


def read_presets(path: Path) -> Mapping[str, Preset]:
    """Read the devices of a file.

    Raises:
        ConfigError: one line that names the file, the key, its value and what is allowed.
    """
    devices: dict[str, Preset] = {}
    for name, values in read_mapping(path).items():
        try:
            devices[name] = convert_part(values, Preset, (name,))
            _check(name, devices[name])
        except Problem as problem:
            raise ConfigError(one_line(f"{shown_path(path)}: {problem}")) from None
    return devices


def _check(name: str, preset: Preset) -> None:
    """Raise a problem for the first value that is inconsistent with other values."""
    timings = preset.timings
    least_ps = timings.rp + timings.rfc
    if timings.refi <= least_ps:
        what = f"must be more than {least_ps / PS_PER_NS:g} ns, the time of a refresh (rp + rfc_ns)"
        raise refused((name, "refi_ns"), f"{preset.refi_ns:g}", what)
    for key, count in (("groups", preset.groups), ("banks_per_group", preset.banks_per_group)):
        if what := no_power_of_two(count):
            raise refused((name, key), count, f"{what}: address bits select it")
    if preset.row_bytes % BURST_BYTES:
        raise refused((name, "row_bytes"), preset.row_bytes, f"must be a multiple of {BURST_BYTES} bytes, a burst")
