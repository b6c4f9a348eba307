"""The collectives over the ranks of a group, elementwise, as in ``torch.distributed``; and ``intercube`` (ADR-0032).

A definition says how its tensors are cut into units (:mod:`sipsim.collectives.schedule`), which rank has each unit
before and which needs it afterwards. Results follow from that, and so do the tiles of every algorithm.
"""

from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

from sipsim.collectives.call import (
    NO_OP,
    Array,
    Call,
    Collective,
    DeviceTensor,
    Distributed,
    collective,
    joined,
    overlap,
    split,
)
from sipsim.collectives.group import Group
from sipsim.collectives.reduction import REDUCTIONS, combine_all
from sipsim.collectives.schedule import PAIRS, RANKS, VECTOR, units
from sipsim.collectives.testdata import PIECE, Seeded, seeded_values
from sipsim.core.dtypes import DType

NO_BOUND = 2**62

Has = Callable[[int, int, int, int], bool]
"""``(unit, rank, size, root)``: whether a rank of a group of ``size`` has a unit, before or afterwards."""


def every_rank(unit: int, rank: int, size: int, root: int) -> bool:
    """All have all units."""
    return True


def only_root(unit: int, rank: int, size: int, root: int) -> bool:
    """The root has all units."""
    return rank == root


def its_own(unit: int, rank: int, size: int, root: int) -> bool:
    """With cut ``ranks``: each has that of its number."""
    return unit == rank


def its_row(unit: int, rank: int, size: int, root: int) -> bool:
    """With cut ``pairs``: those that come from the rank."""
    return unit // size == rank


def its_column(unit: int, rank: int, size: int, root: int) -> bool:
    """With cut ``pairs``: those that go to the rank."""
    return unit % size == rank


class GroupCollective(Collective):
    """``cut``: see :mod:`~sipsim.collectives.schedule`. ``gathers``: with cut ``ranks``, the result is the large
    tensor.

    ``has_root``: one rank is named by the call. It combines values if it has operators.
    """

    cut: str = VECTOR
    gathers: bool = True
    has_root: bool = False

    holds: Has
    """Whether a rank has a unit before."""
    needs: Has
    """Whether a rank has a unit afterwards, whole or combined."""
    must_have = (*Collective.must_have, "holds", "needs")

    @property
    def combines(self) -> bool:
        """Whether values are combined by an operator."""
        return bool(self.ops)

    @property
    def is_shared(self) -> bool:
        """Whether several ranks get the same combination."""
        return self.combines and self.needs(0, 0, 2, 0) and self.needs(0, 1, 2, 0)

    def elements(self, n_elem: int, size: int) -> tuple[int, int]:
        """Elements of source and result, with units of ``n_elem``."""
        if self.cut == VECTOR:
            return n_elem, n_elem
        if self.cut == PAIRS:
            return n_elem * size, n_elem * size
        return (n_elem, n_elem * size) if self.gathers else (n_elem * size, n_elem)

    def check_call(self, call: Call, size: int, rank: int) -> None:
        """Check the call of a rank in a group of ``size``.

        Raises:
            ValueError: an operator or a root that it does not take, tensors that do not fit, or that share memory.
        """
        if call.op not in (self.ops or (NO_OP,)):
            raise ValueError(
                f"op {call.op!r} is not available; {self.name} takes {', '.join(map(repr, self.ops or (NO_OP,)))}"
            )
        if self.has_root and not 0 <= call.values[0] < size:
            raise ValueError(f"{self.name}: rank {call.values[0]} is not in the group, whose ranks are 0 to {size - 1}")
        tensors = call.tensors()
        if not tensors:
            raise ValueError(f"{self.name} needs a tensor")
        root = call.values[0] if self.has_root else 0
        for what, tensor, has in (("source", call.source, self.holds), ("result", call.result, self.needs)):
            if tensor is None and any(has(unit, rank, size, root) for unit in range(units(self.cut, size))):
                raise ValueError(f"{self.name}: rank {rank} of the group gives no {what}, and needs one")
        if call.op == "avg" and not tensors[0].dtype.is_float:
            raise ValueError(f"{self.name}: op 'avg' needs a floating type, not {tensors[0].dtype}")
        for each in tensors:
            self._check_shards(each)
        if call.source is not None and call.result is not None:
            self._check_pair(call.source, call.result, size)
            self._check_memory(call.source, call.result, size, rank)

    def _check_shards(self, tensor: DeviceTensor) -> None:
        levels = ((tensor.dp.cube, tensor.dp.num_cubes, "cubes"), (tensor.dp.pe, tensor.dp.num_pes, "PEs"))
        for layout, count, who in levels:
            if count > 1 and layout == "replicate":
                raise ValueError(f"{self.name}: {count} {who} have copies of the tensor; it takes row_wise ones")
            if count > 1 and layout == "column_wise" and self.cut != VECTOR:
                raise ValueError(f"{self.name}: {count} {who} share the tensor's columns; it takes row_wise ones")

    def _check_pair(self, source: DeviceTensor, result: DeviceTensor, size: int) -> None:
        if source.dtype != result.dtype:
            raise ValueError(f"{self.name} converts no types: source {source.dtype}, result {result.dtype}")
        if source.dp.places() != result.dp.places():
            raise ValueError(f"{self.name}: source and result lie on other PEs than each other")
        of_source, of_result = self.elements(1, size)
        if source.numel() * of_result != result.numel() * of_source:
            what = f"{source.numel()} and {result.numel()} elements"
            wanted = f"{of_result // of_source} times" if of_result >= of_source else f"1/{of_source} of"
            raise ValueError(
                f"{self.name}: source and result have {what}; with {size} ranks the result has {wanted} the source's"
            )

    def _check_memory(self, source: DeviceTensor, result: DeviceTensor, size: int, rank: int) -> None:
        """In one tensor, a rank's own part at its place is not moved; all else would be written before it is read."""
        if source is result and self.in_place:
            return
        own, other = source.ranges(), result.ranges()
        if not overlap(own, other):
            return
        takes = "two tensors"
        if self.cut == RANKS:
            small, large = (own, other) if self.gathers else (other, own)
            nbytes = min(source.nbytes, result.nbytes)
            there, elsewhere = split(large, rank * nbytes, nbytes)
            if there == joined(small) and not overlap(small, elsewhere):
                return
            takes = f"two tensors, or part {rank} of the larger one as the smaller one on rank {rank} of the group"
        elif size == 1 and joined(own) == joined(other):
            return
        raise ValueError(f"{self.name}: source and result share memory; it takes {takes}")

    def results(self, inputs: Sequence[Array], values: tuple[int, ...]) -> Sequence[Array | None]:
        root, size = (values or (0,))[0], len(inputs)
        return [self.result_of(list(inputs), size, root, NO_OP, rank) for rank in range(size)]

    def expected(self, data: Seeded, rank: int, values: tuple[int, ...]) -> Array | None:
        raise NotImplementedError

    def result_of(self, sources: list[Array], size: int, root: int, op: str, rank: int) -> Array | None:
        """A rank's result from the sources of all, in their type; None if it needs none."""
        n_elem = len(sources[root]) // self.elements(1, size)[0]

        def total_of(ranks: list[int], unit: int) -> Array:
            start = self.start_of(unit, n_elem, size)
            return combine_all(op, (sources[other][start : start + n_elem] for other in ranks))

        return self.result_from(total_of, size, root, rank)

    def result_from(self, total_of: Callable[[list[int], int], Array], size: int, root: int, rank: int) -> Array | None:
        """A rank's result by the definition, for exact data; None if it needs none.

        ``total_of(ranks, unit)``: the elements of a unit, combined over the ranks, which have it; one if none combines.
        """
        found = []
        for unit in range(units(self.cut, size)):
            if self.needs(unit, rank, size, root):
                ranks = [other for other in range(size) if self.holds(unit, other, size, root)]
                found.append(total_of(ranks if self.combines else ranks[:1], unit))
        return np.concatenate(found) if found else None

    def start_of(self, unit: int, n_elem: int, size: int) -> int:
        """The first element of a unit of ``n_elem`` in the source of a rank that has it."""
        return unit % self.elements(1, size)[0] * n_elem


class NcclCollective(GroupCollective):
    """One of nccl-tests: with cut ``vector`` it combines to all ranks, or has a root; with others all units are alike.

    Another may move other bytes, and says itself what its ``busbw_factor`` is.
    """

    def busbw_factor(self, size: int) -> Fraction:
        """By what each rank must send or receive at least, in sizes of the larger tensor."""
        if self.cut != VECTOR:
            return Fraction(size - 1, size)
        return Fraction(1) if self.has_root else Fraction(2 * (size - 1), size)


class Task(NamedTuple):
    """What an algorithm makes a schedule for. ``root``: a rank of the group; ``n_elem``: elements of a unit.

    ``in_place``: source and result are one tensor. ``workers``: PEs of a rank that share the elements, each with
    ``room_bytes`` for what its kernel holds.
    """

    collective: GroupCollective
    group: Group
    n_elem: int
    itemsize: int
    root: int = 0
    in_place: bool = True
    workers: int = 1
    room_bytes: int = NO_BOUND

    @property
    def size(self) -> int:
        """The number of ranks."""
        return self.group.size


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


def intercube_all_reduce(dist: Distributed, tensor: DeviceTensor, op: str = "sum", async_op: bool = False) -> Any:
    """Every row (one a cube) of every rank becomes the sum of all rows of all ranks (ADR-0032).

    Raises:
        RuntimeError: before ``init_process_group``.
        ValueError: another ``op``, or a tensor that does not lie on every cube.
    """
    return dist.run_collective(Intercube.name, Call(tensor, tensor, op), async_op)


@collective
class Intercube(Collective):
    """The sum over cubes and SIPs, in place."""

    name = "intercube"
    about = "every row, one a cube, ends as the sum of all rows of all ranks (ADR-0032)"
    ops = ("sum",)
    in_place = True
    is_default = True
    method = staticmethod(intercube_all_reduce)

    def check(self, call: Call, size: int, n_cubes: int, layout: tuple[str, str] | None = None) -> None:
        if call.op in REDUCTIONS and call.op not in self.ops:
            other = f"all_reduce(tensor, op={call.op!r}, algorithm='auto') combines elementwise over ranks"
            raise ValueError(f"intercube_all_reduce takes op 'sum', not {call.op!r}; {other}")
        super().check(call, size, n_cubes, layout)

    def busbw_factor(self, size: int) -> Fraction:
        return Fraction(2 * (size - 1), size)

    def contributions(self, size: int, n_cubes: int) -> int:
        return size * n_cubes

    def expected(self, data: Seeded, rank: int, values: tuple[int, ...]) -> Array:
        return expected_row(data.ranks, data.shape, data.dtype, data.seed)


def expected_row(ranks: int, shape: tuple[int, int], dtype: DType, seed: int) -> Array:
    """Each row after it of seeded data, exactly, in ``dtype``; shape (elements,)."""
    cubes, n_elem = shape
    total = np.zeros(n_elem, dtype=np.int64)
    for start in range(0, n_elem, PIECE):
        piece = total[start : start + PIECE]
        for row in range(ranks * cubes):
            piece += seeded_values(row * n_elem + start, len(piece), dtype, seed, ranks * cubes)
    return total.astype(dtype.numpy)


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


def scatter(
    dist: Distributed,
    tensor: DeviceTensor,
    scatter_list: Any = None,
    src: int = 0,
    group: Any = None,
    async_op: bool = False,
    algorithm: str = "",
    pes: Sequence[int] = (),
) -> Any:
    """``tensor`` becomes this rank's part of ``scatter_list`` of rank ``src``, a list or one tensor; others give none.

    Raises:
        RuntimeError: before ``init_process_group``.
        ValueError: tensors that do not fit.
    """
    return dist.run_collective(Scatter.name, Call(scatter_list, tensor, values=(src,)), async_op, group, algorithm, pes)


@collective
class Scatter(NcclCollective):
    """Part ``r`` of the root's tensor, on rank ``r``."""

    name = "scatter"
    about = "each rank ends with its part of the root's tensor"
    gathers = False
    has_root = True
    cut = RANKS
    holds = staticmethod(only_root)
    needs = staticmethod(its_own)
    method = staticmethod(scatter)
