"""Reduce over the ranks of a group: the root ends with the combination of all tensors."""

from collections.abc import Sequence
from typing import Any

from sipsim.collectives.call.base import Call, DeviceTensor, Distributed, collective
from sipsim.collectives.reduction.operators import REDUCTIONS
from sipsim.collectives.schedule.blocks import VECTOR
from sipsim.collectives.semantics.group import NcclCollective, every_rank, only_root


def reduce(
    dist: Distributed,
    tensor: DeviceTensor,
    dst: int = 0,
    op: str = "sum",
    group: Any = None,
    async_op: bool = False,
    algorithm: str = "",
    pes: Sequence[int] = (),
) -> Any:
    """The tensor of rank ``dst`` becomes the combination of all; those of others stay as they are.

    Raises:
        RuntimeError: before ``init_process_group``.
        ValueError: tensors that do not fit, or another ``op``.
    """
    return dist.run_collective(Reduce.name, Call(tensor, tensor, op, values=(dst,)), async_op, group, algorithm, pes)


@collective
class Reduce(NcclCollective):
    """The combination over all ranks, on the root."""

    name = "reduce"
    about = "the root ends with the combination over all ranks"
    in_place = True
    has_root = True
    cut = VECTOR
    ops = REDUCTIONS
    holds = staticmethod(every_rank)
    needs = staticmethod(only_root)
    method = staticmethod(reduce)
