"""Chip ``blackhole``: 140 Tensix workers, 14 Ethernet cores of 400 Gb/s, 8 channels of GDDR6, two NoCs."""

from sipsim.chips.api.chip import CHIPS
from sipsim.chips.tensix.chip.tensix import TensixKind


class Blackhole(TensixKind):
    """Its parameters are those of ``configs/chips/blackhole.yaml``."""

    about = "Tensix workers and Ethernet cores, which run data movement kernels"
    name = "blackhole"
    link = "tenstorrent_400g"


CHIPS.register("blackhole")(Blackhole())
