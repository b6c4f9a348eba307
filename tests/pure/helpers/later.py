"""Generations of queue pairs that are made while time runs. Not a test."""

from msgspec.structs import replace

from sipsim.chips.ahbm.address import PePlace
from sipsim.chips.ahbm.collectives.neighbours import NeighbourTable
from sipsim.chips.ahbm.collectives.queue_pairs import InstallPlan, install
from sipsim.chips.ahbm.ipcq.messages import IpcqInitEntry
from sipsim.chips.ahbm.plan import Plan

ABOVE = 2**19
"""Rings of later generations lie this much above the begin of the TCM's IPCQ region, beyond those of the plan."""


def later(plan: Plan, places: list[PePlace], table: NeighbourTable, above: int = ABOVE) -> InstallPlan:
    """The queue pairs of a table, with rings in the TCMs."""
    made = install(plan.system, replace(plan.ipcq, buffer_kind="tcm"), places, table)
    return {place: [_moved(entry, above) for entry in entries] for place, entries in made.items()}


def _moved(entry: IpcqInitEntry, above: int) -> IpcqInitEntry:
    peer = entry.peer
    if peer.rx_base_pa:
        peer = peer._replace(rx_base_pa=peer.rx_base_pa + above)
    return entry._replace(peer=peer._replace(rx_base_va=0), my_rx_base_pa=entry.my_rx_base_pa + above)
