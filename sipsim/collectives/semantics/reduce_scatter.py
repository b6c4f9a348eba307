"""Reduce-scatter over the ranks of a group: each rank ends with its part of the combination of all tensors."""

from collections.abc import Sequence
from typing import Any

from sipsim.collectives.call.base import Call, DeviceTensor, Distributed, collective
from sipsim.collectives.reduction.operators import REDUCTIONS
from sipsim.collectives.schedule.blocks import RANKS
from sipsim.collectives.semantics.group import NcclCollective, every_rank, its_own


def reduce_scatter(
    dist: Distributed,
    output: DeviceTensor,
    input_list: Any,
    op: str = "sum",
    group: Any = None,
    async_op: bool = False,
    algorithm: str = "",
    pes: Sequence[int] = (),
) -> Any:
    """``output`` becomes this rank's part of the ranks' inputs combined: one tensor a part, or one of all parts.

    Raises:
        RuntimeError: before ``init_process_group``.
        ValueError: tensors that do not fit, or another ``op``.
    """
    return dist.run_collective(ReduceScatter.name, Call(input_list, output, op), async_op, group, algorithm, pes)


@collective
class ReduceScatter(NcclCollective):
    """Part ``r`` of the combined tensors, on rank ``r``."""

    name = "reduce_scatter"
    about = "each rank ends with its part of the combination over all ranks"
    gathers = False
    cut = RANKS
    ops = REDUCTIONS
    holds = staticmethod(every_rank)
    needs = staticmethod(its_own)
    method = staticmethod(reduce_scatter)
