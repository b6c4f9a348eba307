"""Gather over the ranks of a group: the root ends with all ranks' tensors."""

from collections.abc import Sequence
from typing import Any

from sipsim.collectives.call.base import Call, DeviceTensor, Distributed, collective
from sipsim.collectives.schedule.blocks import RANKS
from sipsim.collectives.semantics.group import NcclCollective, its_own, only_root


def gather(
    dist: Distributed,
    tensor: DeviceTensor,
    gather_list: Any = None,
    dst: int = 0,
    group: Any = None,
    async_op: bool = False,
    algorithm: str = "",
    pes: Sequence[int] = (),
) -> Any:
    """``gather_list`` of rank ``dst`` becomes the tensors of all ranks, a list or one tensor; other ranks give none.

    Raises:
        RuntimeError: before ``init_process_group``.
        ValueError: tensors that do not fit.
    """
    return dist.run_collective(Gather.name, Call(tensor, gather_list, values=(dst,)), async_op, group, algorithm, pes)


@collective
class Gather(NcclCollective):
    """The tensors of all ranks, in order, on the root."""

    name = "gather"
    about = "the root ends with the tensors of all ranks"
    gathers = True
    has_root = True
    cut = RANKS
    holds = staticmethod(its_own)
    needs = staticmethod(only_root)
    method = staticmethod(gather)
