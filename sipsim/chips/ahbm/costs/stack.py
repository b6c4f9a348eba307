"""Bandwidth that PEs get from a cube's HBM stack when they stream their slices, and the bottleneck of this bandwidth.

The model uses only bandwidths, not latencies or banks. Slices are equal, so the result is computed for one slice.
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
"""Possible bottlenecks by their keys. Of several equal bottlenecks the first is named, with the keys of all."""


class Stack:
    """HBM stack of a cube, with a device of ``configs/hbm.yaml``. ``knobs``: settings of the queues."""

    def __init__(self, resolved: Resolved, knobs: IpcqKnobs) -> None:
        with resolved.reads.apart():
            cost, self._pes = resolved.components.hbm, resolved.topology.cube.pes
            self._params = convert_part(cost.params, HbmParams, PRESET[:-1])
            self._device = presets()[self._params.preset]
            place = PhysAddr(0, 0, 0, "hbm", 0)
            self._slowest = slowest(Prices(AhbmSystem(resolved, knobs), knobs).read(place[:3], place.encode(), MIB))

    def bound(self, slices: int | None = None) -> StackBound:
        """Return the rate bound of PEs that stream ``slices`` slices; if None, all slices of the stack."""
        slices = self._pes if slices is None else slices
        device, channels = self._device, slices * self._params.channels
        # A config may give PEs more channels than a stack has: then the published bandwidth is scaled to their number.
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
        """Return one warning if the bottleneck is not the device that the user has ``chosen``, else an empty list."""
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
        return [f"{given}: PEs get {bound.GBps:.0f} of {bound.published_GBps:.0f} GB/s per stack: {bound.text}{remedy}"]


def stack_of(resolved: Resolved, knobs: IpcqKnobs) -> Stack | None:
    """Return the stack of a config; None if the kind of its HBM has no device."""
    with resolved.reads.apart():
        kind = resolved.components.hbm.kind
    return Stack(resolved, knobs) if kind == HBM_CONTROLLER else None
