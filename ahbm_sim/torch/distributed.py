"""``torch.distributed`` of the rank whose host script runs (:mod:`ahbm_sim.torch`)."""

from typing import Any

from ahbm_sim.torch import attribute


def __getattr__(name: str) -> Any:
    from sipsim.chips.ahbm.host.distributed import Distributed

    return attribute("distributed", name, Distributed)
