"""All-reduce over the ranks of a group: each element becomes its combination over all ranks."""

from fractions import Fraction
from typing import Any

from sipsim.ccl.collectives.base import Call, DeviceTensor, Group, collective
from sipsim.ccl.collectives.group import REDUCTIONS, GroupCollective
from sipsim.ccl.schedule.blocks import VECTOR


def all_reduce(dist: Group, tensor: DeviceTensor, op: str = "sum", group: Any = None, async_op: bool = False) -> Any:
    """Each element becomes its combination over the ranks; a row a cube: the sum of all rows, too (ADR-0032).

    Raises:
        RuntimeError: before ``init_process_group``.
        ValueError: tensors that do not fit, or another ``op``.
    """
    return dist.run_collective(AllReduce.name, Call(tensor, tensor, op), async_op, group)


@collective
class AllReduce(GroupCollective):
    """Elementwise, in place."""

    name = "all_reduce"
    about = "each element ends as its combination over all ranks"
    in_place = True
    cut = VECTOR
    ops = REDUCTIONS
    method = staticmethod(all_reduce)

    def busbw_factor(self, size: int) -> Fraction:
        return Fraction(2 * (size - 1), size)

    def holds(self, unit: int, rank: int, size: int, root: int) -> bool:
        return True

    def needs(self, unit: int, rank: int, size: int, root: int) -> bool:
        return True
