"""Cluster as a host script sees it: where each chip is, and which chips a host reaches over PCIe."""

from typing import Any

from sipsim.chips.tensix.arguments import Within, checked, whole
from sipsim.core.errors import KernelMisuse
from sipsim.topology.links import Location


@checked("tt.cluster")
class Cluster:
    """Cluster of chips, the attribute ``tt.cluster``. ``plan``: the plan of the run."""

    def __init__(self, plan: Any) -> None:
        self._plan = plan

    @property
    def rows(self) -> list[list[int]]:
        """The ranks of the mesh, row by row; empty if the locations are unknown or fill no single mesh."""
        return [list(row) for row in self._plan.rows]

    def location(self, rank: Within) -> Location:
        """Return the location of a chip, ``(x, y, rack, shelf)``.

        Raises:
            KernelMisuse: for an unknown rank, or a system whose description has no locations.
        """
        rank = self._rank(rank)
        if not self._plan.locations:
            raise KernelMisuse(f"the location of SIP {rank} is unknown; give system.sips.locations, or --cluster")
        found: Location = self._plan.locations[rank]
        return found

    def is_device_pcie_connected(self, rank: Within) -> bool:
        """Return whether a host reaches a chip over PCIe, and not over another chip's Ethernet links.

        Raises:
            KernelMisuse: for an unknown rank.
        """
        return self._rank(rank) not in self._plan.remote

    def _rank(self, rank: int) -> int:
        return whole("rank", rank, 0, self._plan.system.n_sips - 1)
