"""Chip ``wormhole``: 80 Tensix workers, 16 Ethernet cores of 100 Gb/s, 6 channels of GDDR6, two NoCs."""

from sipsim.chips.api.chip import CHIPS
from sipsim.chips.tensix.chip.tensix import TensixKind


class Wormhole(TensixKind):
    """Its parameters are those of ``configs/chips/wormhole.yaml``."""

    about = "Tensix workers and Ethernet cores, which run data movement kernels"
    name = "wormhole"
    link = "tenstorrent_100g"


CHIPS.register("wormhole")(Wormhole())
