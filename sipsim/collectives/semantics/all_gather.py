"""All-gather over the ranks of a group: each rank ends with all ranks' tensors."""

from collections.abc import Sequence
from typing import Any

from sipsim.collectives.call.base import Call, DeviceTensor, Distributed, collective
from sipsim.collectives.schedule.blocks import RANKS
from sipsim.collectives.semantics.group import NcclCollective, every_rank, its_own


def all_gather(
    dist: Distributed,
    tensor_list: Any,
    tensor: DeviceTensor,
    group: Any = None,
    async_op: bool = False,
    algorithm: str = "",
    pes: Sequence[int] = (),
) -> Any:
    """``tensor_list`` becomes the tensors of all ranks: one for each, or one tensor of all, one after the other.

    Raises:
        RuntimeError: before ``init_process_group``.
        ValueError: tensors that do not fit.
    """
    return dist.run_collective(AllGather.name, Call(tensor, tensor_list), async_op, group, algorithm, pes)


@collective
class AllGather(NcclCollective):
    """The tensors of all ranks, in order of ranks."""

    name = "all_gather"
    about = "each rank ends with the tensors of all ranks"
    gathers = True
    cut = RANKS
    holds = staticmethod(its_own)
    needs = staticmethod(every_rank)
    method = staticmethod(all_gather)
