"""All-reduce over the ranks of a group: each element becomes its combination over all ranks."""

from collections.abc import Sequence
from typing import Any

from sipsim.ccl.collectives.base import Call, DeviceTensor, Group, collective
from sipsim.ccl.collectives.group import NcclCollective, every_rank
from sipsim.ccl.operators import REDUCTIONS
from sipsim.ccl.schedule.blocks import VECTOR


def all_reduce(
    dist: Group,
    tensor: DeviceTensor,
    op: str = "sum",
    group: Any = None,
    async_op: bool = False,
    algorithm: str = "",
    pes: Sequence[int] = (),
) -> Any:
    """Each element becomes its combination over the ranks of a group.

    A tensor with a row on each cube is that of ADR-0032, and runs ``intercube`` in the group of all ranks: unless the
    call, or the config, names an algorithm of this collective.

    Raises:
        RuntimeError: before ``init_process_group``.
        ValueError: another ``op``, a layout with copies, or an algorithm that cannot run this.
    """
    is_intercube = group is None and dist.is_row_a_cube(tensor) and not dist.runs_all_reduce(algorithm)
    name = "intercube" if is_intercube else AllReduce.name
    return dist.run_collective(name, Call(tensor, tensor, op), async_op, group, algorithm, pes)


@collective
class AllReduce(NcclCollective):
    """Elementwise, in place."""

    name = "all_reduce"
    about = "each element ends as its combination over all ranks"
    in_place = True
    cut = VECTOR
    ops = REDUCTIONS
    holds = staticmethod(every_rank)
    needs = staticmethod(every_rank)
    method = staticmethod(all_reduce)
