"""What ``torch.distributed`` has besides collectives and the making of groups: other names, ranks, and the barrier."""

import weakref
from collections.abc import Callable, Sequence
from typing import Any

from sipsim.chips.ahbm.collectives.catalog.select import AUTO
from sipsim.chips.ahbm.host.layout.dp_policy import DPPolicy
from sipsim.chips.ahbm.host.layout.shaped import whole
from sipsim.chips.ahbm.host.process_groups.groups import GroupHandle, GroupMember, NonMember
from sipsim.chips.ahbm.host.stream.kernel_queue import Work
from sipsim.chips.api.bridge.base import host_call
from sipsim.collectives.call.base import COLLECTIVES, Call


class WorldGroup:
    """``torch.distributed.group``: its ``WORLD`` is the group of all ranks, once there is one."""

    def __init__(self, world: Callable[[], GroupHandle | None]) -> None:
        self._world = world

    @property
    def WORLD(self) -> GroupHandle | None:
        """The group of all ranks."""
        return self._world()


class TorchNames:
    """Part of :class:`sipsim.chips.ahbm.host.distributed.distributed.Distributed`, which has what is declared here."""

    GroupMember = GroupMember
    _token: Any = None
    _device: Callable[[], Any] = staticmethod(lambda: None)
    all_gather: Callable[..., Work | None]
    reduce_scatter: Callable[..., Work | None]
    all_to_all: Callable[..., Work | None]
    new_group: Callable[..., GroupHandle]
    start_collective: Callable[..., Work]
    get_rank: Callable[..., int]
    get_world_size: Callable[..., int]

    def all_gather_into_tensor(self, output_tensor: Any, input_tensor: Any, *more: Any, **how: Any) -> Work | None:
        """``all_gather`` into one tensor: those of all ranks, one after the other."""
        return self.all_gather(output_tensor, input_tensor, *more, **how)

    def reduce_scatter_tensor(
        self,
        output: Any,
        input: Any,  # noqa: A002
        *more: Any,
        **how: Any,
    ) -> Work | None:
        """``reduce_scatter`` of one tensor: its parts, one after the other."""
        return self.reduce_scatter(output, input, *more, **how)

    def all_to_all_single(
        self,
        output: Any,
        input: Any,  # noqa: A002
        output_split_sizes: Sequence[int] | None = None,
        input_split_sizes: Sequence[int] | None = None,
        group: GroupHandle | None = None,
        *more: Any,
        **how: Any,
    ) -> Work | None:
        """``all_to_all`` of one tensor in equal parts, one after the other. Split sizes: rows of each rank's part.

        Raises:
            ValueError: for parts of other sizes, not one for each rank, or of other rows in all than the tensor has.
        """
        size = self.get_world_size(group)
        for name, tensor, rows in (("output", output, output_split_sizes), ("input", input, input_split_sizes)):
            if rows and not isinstance(group, NonMember):
                _check_parts(name, list(rows), tensor.shape[0], size)
        return self.all_to_all(output, input, group, *more, **how)

    def tensors_on(self, device: Any) -> None:
        """The device that makes the tensors of barriers."""
        self._device = weakref.ref(device)

    @host_call
    def barrier(self, group: GroupHandle | None = None, async_op: bool = False) -> Work | None:
        """Wait until all ranks of a group have called it: an all-reduce of one element, without a row of its own.

        Raises:
            RuntimeError: before ``init_process_group``.
        """
        if isinstance(group, NonMember):
            return None
        if self._token is None:
            self._token = self._device().zeros((1,), dtype="i32", dp=DPPolicy(num_cubes=1))
        call = Call(self._token, self._token, "sum")
        work = self.start_collective(COLLECTIVES.get("all_reduce"), call, group, AUTO, "barrier")
        if async_op:
            return work
        work.wait()
        return None

    def get_process_group_ranks(self, group: GroupHandle | None = None) -> list[int]:
        """The ranks of the run that are in a group, in its order; empty outside of it."""
        if group is None:
            return list(range(self.get_world_size()))
        return [] if isinstance(group, NonMember) else list(group.group.sips)

    def get_group_rank(self, group: GroupHandle, global_rank: int) -> int:
        """The rank in a group of a rank of the run.

        Raises:
            ValueError: when it is not in the group.
        """
        ranks = self.get_process_group_ranks(group)
        if global_rank not in ranks:
            raise ValueError(f"rank {global_rank} is not in {group!r}")
        return ranks.index(global_rank)

    def get_global_rank(self, group: GroupHandle, group_rank: int) -> int:
        """The rank of the run of a rank in a group.

        Raises:
            ValueError: when the group has no such rank.
        """
        ranks = self.get_process_group_ranks(group)
        if not 0 <= group_rank < len(ranks):
            raise ValueError(f"{group!r} has no rank {group_rank}; it has {len(ranks)}")
        return ranks[group_rank]

    def new_subgroups(
        self, group_size: int | None = None, group: GroupHandle | None = None, **how: Any
    ) -> tuple[GroupHandle, list[GroupHandle]]:
        """The ranks, or those of a group, in groups of ``group_size`` one after the other: this rank's, and all.

        Every rank of the run calls it; on those outside of ``group`` the first equals ``NON_GROUP_MEMBER``.

        Raises:
            TypeError: for a size that is no whole number.
            ValueError: when the ranks cannot be shared equally.
        """
        size = 0 if group_size is None else whole("new_subgroups: group_size", group_size)
        ranks = list(group.sips) if isinstance(group, NonMember) else self.get_process_group_ranks(group)
        if size < 1 or not ranks or len(ranks) % size:
            raise ValueError(f"new_subgroups: group_size={group_size}: must divide the {len(ranks)} ranks")
        made = [self.new_group(ranks[start : start + size], **how) for start in range(0, len(ranks), size)]
        own = (each for each in made if not isinstance(each, NonMember))
        return next(own, GroupMember.NON_GROUP_MEMBER), made


def _check_parts(name: str, rows: list[int], whole: int, size: int) -> None:
    if len(rows) != size or sum(rows) != whole or len(set(rows)) > 1:
        raise ValueError(
            f"all_to_all_single: {name}_split_sizes={rows}: must be the rows of {size} parts, one for each rank, "
            f"equal here, {whole} in all"
        )
