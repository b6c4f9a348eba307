"""All-to-all over the ranks of a group: rank ``j`` ends with part ``j`` of every rank's tensor."""

from collections.abc import Sequence
from typing import Any

from sipsim.collectives.call.base import Call, Distributed, collective
from sipsim.collectives.schedule.blocks import PAIRS
from sipsim.collectives.semantics.group import NcclCollective, its_column, its_row


def all_to_all(
    dist: Distributed,
    output_list: Any,
    input_list: Any,
    group: Any = None,
    async_op: bool = False,
    algorithm: str = "",
    pes: Sequence[int] = (),
) -> Any:
    """Part ``i`` of ``output_list`` becomes this rank's part of the input of rank ``i``; each a list, or one tensor.

    Raises:
        RuntimeError: before ``init_process_group``.
        ValueError: tensors that do not fit.
    """
    return dist.run_collective(AllToAll.name, Call(input_list, output_list), async_op, group, algorithm, pes)


@collective
class AllToAll(NcclCollective):
    """Part ``j`` of each rank's tensor, on rank ``j``, in order of ranks."""

    name = "all_to_all"
    about = "each rank ends with its part of every rank's tensor"
    cut = PAIRS
    holds = staticmethod(its_row)
    needs = staticmethod(its_column)
    method = staticmethod(all_to_all)
