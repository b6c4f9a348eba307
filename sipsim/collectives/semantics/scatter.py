"""Scatter over the ranks of a group: each rank ends with its part of the root's tensor."""

from collections.abc import Sequence
from typing import Any

from sipsim.collectives.call.base import Call, DeviceTensor, Distributed, collective
from sipsim.collectives.schedule.blocks import RANKS
from sipsim.collectives.semantics.group import NcclCollective, its_own, only_root


def scatter(
    dist: Distributed,
    tensor: DeviceTensor,
    scatter_list: Any = None,
    src: int = 0,
    group: Any = None,
    async_op: bool = False,
    algorithm: str = "",
    pes: Sequence[int] = (),
) -> Any:
    """``tensor`` becomes this rank's part of ``scatter_list`` of rank ``src``, a list or one tensor; others give none.

    Raises:
        RuntimeError: before ``init_process_group``.
        ValueError: tensors that do not fit.
    """
    return dist.run_collective(Scatter.name, Call(scatter_list, tensor, values=(src,)), async_op, group, algorithm, pes)


@collective
class Scatter(NcclCollective):
    """Part ``r`` of the root's tensor, on rank ``r``."""

    name = "scatter"
    about = "each rank ends with its part of the root's tensor"
    gathers = False
    has_root = True
    cut = RANKS
    holds = staticmethod(only_root)
    needs = staticmethod(its_own)
    method = staticmethod(scatter)
