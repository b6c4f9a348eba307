"""What a cube's stack of HBM can give PEs that stream their slices, and what binds it: its channels, routers or ports.

By bandwidths alone, without latencies and banks. Slices are alike, so one stands for all.
"""

from sipsim.chips.ahbm.address import PhysAddr
from sipsim.chips.ahbm.costs.prices import MIB, Prices, slowest
from sipsim.chips.ahbm.memory.hbm import HBM_CONTROLLER, HbmParams
from sipsim.chips.ahbm.memory.presets import presets
from sipsim.chips.ahbm.system import AhbmSystem
from sipsim.chips.api.chip import StackBound
from sipsim.config.check import convert_part, dotted, value_at
from sipsim.config.load import variants
from sipsim.config.schema import Change, IpcqKnobs, Resolved
from sipsim.config.yaml import read_mapping, shown_path

PRESET, CHANNELS = ("hbm", "params", "preset"), "hbm.params.channels"
PORTS = {
    "pe_dma.bandwidth_GBps": "ports of PE_DMA",
    "router.bandwidth_GBps": "routers",
    "hbm.bandwidth_GBps": "ports of the HBM controller",
    "tcm.params.bandwidth_GBps": "ports of TCMs",
}
"""What has a bandwidth, by its key. Of several that are as narrow the first is named, with the keys of all."""


class Stack:
    """The stack of each cube of ``resolved``, with a device of ``configs/hbm.yaml``. ``knobs``: those of the queues."""

    def __init__(self, resolved: Resolved, knobs: IpcqKnobs) -> None:
        with resolved.reads.apart():
            cost, self._pes = resolved.components.hbm, resolved.topology.cube.pes
            self._params = convert_part(cost.params, HbmParams, PRESET[:-1])
            self._device = presets()[self._params.preset]
            place = PhysAddr(0, 0, 0, "hbm", 0)
            self._slowest = slowest(Prices(AhbmSystem(resolved, knobs), knobs).read(place[:3], place.encode(), MIB))

    def bound(self, slices: int | None = None) -> StackBound:
        """What binds PEs that stream so many slices; None for all of the stack's."""
        slices = self._pes if slices is None else slices
        device, channels = self._device, slices * self._params.channels
        # A config may give PEs more channels than a stack has: then it is the bandwidth of as many.
        in_stack = max(device.stack_channels, self._pes * self._params.channels)
        published_GBps = device.stack_GBps * in_stack / device.stack_channels
        GBps = min(slices * MIB * 1000 / self._slowest.ps, published_GBps)
        named = next((what for key, what in PORTS.items() if key in self._slowest.keys), None)
        if named is None and channels < in_stack:
            return StackBound(published_GBps, GBps, f"{channels} of {in_stack} channels", (CHANNELS,))
        if named is None:
            refresh = "" if self._params.refresh == "none" else ", less refresh"
            return StackBound(published_GBps, GBps, f"the stack itself{refresh}", (dotted(PRESET),))
        keys = tuple(key for key in PORTS if key in self._slowest.keys)
        return StackBound(published_GBps, GBps, f"{slices} {named}", keys)

    def caution(self, chosen: Change) -> list[str]:
        """A line if something else than the device binds a stack whose device the user has ``chosen``."""
        bound = self.bound()
        if bound.keys == (dotted(PRESET),):
            return []
        wider = [
            f"--variant {name}"
            for name, file in variants().items()
            if value_at(read_mapping(file), PRESET) == chosen.value and shown_path(file) != chosen.origin
        ]
        remedy = f"; {wider[0]} sets stack and ports together" if wider else ""
        given = f"{chosen.origin}: {dotted(PRESET)} = {chosen.value}"
        return [f"{given}: PEs get {bound.GBps:.0f} of {bound.published_GBps:.0f} GB/s a stack: {bound.text}{remedy}"]


def stack_of(resolved: Resolved, knobs: IpcqKnobs) -> Stack | None:
    """None for memories of other kinds, which have no device."""
    with resolved.reads.apart():
        kind = resolved.components.hbm.kind
    return Stack(resolved, knobs) if kind == HBM_CONTROLLER else None
