"""A communicator: a group of ranks, the algorithm that they run, and the queue pairs that join them."""

from collections.abc import Iterable
from itertools import product
from typing import Any, NamedTuple

from sipsim.chips.ahbm.address import PePlace
from sipsim.chips.ahbm.collectives.algorithm import Algorithm
from sipsim.chips.ahbm.collectives.queue_pairs import InstallPlan
from sipsim.chips.ahbm.system import System
from sipsim.collectives.call.base import COPIES, Layout


class Communicator(NamedTuple):
    """The group's kernels run on ``pe_of_rank``, the PEs by rank, over the queue pairs ``entries``."""

    algorithm: Algorithm
    pe_of_rank: list[PePlace]
    entries: InstallPlan

    @property
    def world_size(self) -> int:
        """The number of its ranks."""
        return len(self.pe_of_rank)

    def on_sip(self, sip: int) -> "Communicator":
        """The same for one SIP: SIPs in one process share no state of the algorithm's module."""
        return self._replace(algorithm=self.algorithm.fresh_instance(sip))

    def places_on(self, sip: int) -> list[PePlace]:
        """Its PEs on one SIP, by rank."""
        return [place for place in self.pe_of_rank if place.sip == sip]

    def check_holders(self, layouts: Iterable[Layout], sip: int) -> None:
        """Check that kernels run on all PEs besides the lead PEs that hold parts of tensors; on these alone, if the
        algorithm divides tensors among PEs.

        Raises:
            ValueError: for a part that no kernel would touch, or a kernel without a part.
        """
        running = set(self.places_on(sip))
        is_divided = self.algorithm.layout is not None and self.algorithm.layout[1] != COPIES
        for dp in layouts:
            if is_divided and dp.num_cubes * dp.num_pes != len(running):
                raise ValueError(
                    f"algorithm {self.algorithm.name} runs on {len(running)} PEs, and the tensor lies on "
                    f"{dp.num_cubes * dp.num_pes}; {_instead(len(running), dp.num_cubes)}"
                )
            for place in product((sip,), range(dp.num_cubes), range(1, dp.num_pes)):
                if place not in running:
                    raise ValueError(
                        f"algorithm {self.algorithm.name} runs no kernel on PE {place[2]} of cube {place[1]}, where a "
                        f"part of the tensor lies; use DPPolicy(num_pes=1), or an algorithm with rank_per: pe"
                    )

    def kernel_args(self, system: System, sip: int, n_elem: int) -> tuple[Any, ...]:
        """What the algorithm gives its kernel on ``sip``; see :meth:`Algorithm.kernel_args`."""
        return self.algorithm.kernel_args(system, self.world_size, sip, n_elem)


def _instead(running: int, n_cubes: int) -> str:
    pes, rest = divmod(running, n_cubes)
    return "let as many PEs of each cube take part (rank_per, world_size)" if rest else f"use DPPolicy(num_pes={pes})"
