"""Broadcast over the ranks of a group: each rank ends with the root's tensor."""

from collections.abc import Sequence
from typing import Any

from sipsim.collectives.call.base import Call, DeviceTensor, Distributed, collective
from sipsim.collectives.schedule.blocks import VECTOR
from sipsim.collectives.semantics.group import NcclCollective, every_rank, only_root


def broadcast(
    dist: Distributed,
    tensor: DeviceTensor,
    src: int = 0,
    group: Any = None,
    async_op: bool = False,
    algorithm: str = "",
    pes: Sequence[int] = (),
) -> Any:
    """Each rank's tensor becomes that of rank ``src``.

    Raises:
        RuntimeError: before ``init_process_group``.
        ValueError: tensors that do not fit.
    """
    return dist.run_collective(Broadcast.name, Call(tensor, tensor, values=(src,)), async_op, group, algorithm, pes)


@collective
class Broadcast(NcclCollective):
    """The root's tensor, everywhere."""

    name = "broadcast"
    about = "each rank ends with the root's tensor"
    in_place = True
    has_root = True
    cut = VECTOR
    holds = staticmethod(only_root)
    needs = staticmethod(every_rank)
    method = staticmethod(broadcast)
