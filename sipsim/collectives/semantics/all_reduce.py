"""All-reduce over the ranks of a group: each element becomes its combination over all ranks."""

from collections.abc import Sequence
from typing import Any

from sipsim.collectives.call.base import Call, DeviceTensor, Distributed, collective
from sipsim.collectives.reduction.operators import REDUCTIONS
from sipsim.collectives.schedule.blocks import VECTOR
from sipsim.collectives.semantics.group import NcclCollective, every_rank
from sipsim.collectives.semantics.intercube import Intercube


def all_reduce(
    dist: Distributed,
    tensor: DeviceTensor,
    op: str = "sum",
    group: Any = None,
    async_op: bool = False,
    algorithm: str = "",
    pes: Sequence[int] = (),
) -> Any:
    """Each element becomes its combination over the ranks of a group, whatever the tensor's shape and layout.

    The config may make a call that names neither a group nor an algorithm ``intercube``, as ADR-0032's scripts mean it
    (``defaults.all_reduce``, or a kernel of the user's as ``defaults.algorithm``).

    Raises:
        RuntimeError: before ``init_process_group``.
        ValueError: another ``op``, a layout with copies, or an algorithm that cannot run this.
    """
    is_intercube = group is None and not algorithm and dist.is_intercube(tensor)
    name = Intercube.name if is_intercube else AllReduce.name
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
