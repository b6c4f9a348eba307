"""One rank's call of a collective: its tensors, the checks of them, and how calls are named in messages."""

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import msgspec
import numpy as np

from sipsim.collectives.reduction import AVG, NO_OP, REDUCTIONS
from sipsim.collectives.schedule import RANKS, VECTOR, units
from sipsim.collectives.semantics import INTERCUBE, Collective
from sipsim.core.dtypes import DType

Range = tuple[int, int]
"""The address of the first byte, and of the first one behind."""


Array = np.ndarray[Any, Any]

COPIES = "replicate"
"""The layout of PEs that divide nothing; with one PE a cube, ADR-0032's."""


class Layout(Protocol):
    """Over how many cubes and PEs of its SIP a tensor is spread, and how."""

    @property
    def num_cubes(self) -> int: ...
    @property
    def num_pes(self) -> int: ...
    @property
    def cube(self) -> str: ...
    @property
    def pe(self) -> str: ...
    def places(self) -> list[tuple[int, int]]: ...
    def blocks(self) -> int: ...
    def cube_blocks(self) -> int: ...


class DeviceTensor(Protocol):
    """What a collective asks of a tensor on the device."""

    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def dtype(self) -> DType: ...
    @property
    def dp(self) -> Layout: ...
    @property
    def nbytes(self) -> int: ...
    def numel(self) -> int: ...
    def elements_per_cube(self) -> int: ...
    def ranges(self) -> list[Range]:
        """Of its addresses, in the order of elements."""

    def numpy(self) -> Array: ...


class Call(NamedTuple):
    """One rank's call of a collective, handed from the script to the launch and its record.

    ``source`` is read, ``result`` is written, and they may be one tensor. None: it has none, such as the result of a
    gather on other ranks than the root. A kernel gets the address of the source, that of the result if it is another
    tensor, then ``values`` (such as the rank of a root), then what the algorithm's ``kernel_args`` returns.

    ``collective``: None for a message from one rank to another. Known once it is planned: ``group``, the number of its
    process group, of the ranks ``sips``; ``number`` in the group, from 1; ``algorithm``; ``text``, alike on all ranks
    that make it; ``workers``, the PEs that a schedule was made for, 0 without one; ``elements``, those of the
    larger tensor, also where this rank has none.
    """

    source: DeviceTensor | None = None
    result: DeviceTensor | None = None
    op: str = NO_OP
    values: tuple[int, ...] = ()
    collective: Collective | None = None
    group: int = 0
    sips: tuple[int, ...] = ()
    number: int = 0
    algorithm: str = ""
    text: str = ""
    workers: int = 0
    elements: int = 0

    @property
    def is_schedule(self) -> bool:
        """Whether the kernel of schedules carries it out, and not one that was wired before the run."""
        return self.workers > 0

    def tensors(self) -> tuple[DeviceTensor, ...]:
        """The source, and the result if it is another tensor; without those that this rank does not have."""
        every = (self.source,) if self.result is self.source else (self.source, self.result)
        return tuple(tensor for tensor in every if tensor is not None)

    def n_elem(self) -> int:
        """Elements a cube of the smaller tensor: what ``kernel_args`` is told."""
        return min(tensor.elements_per_cube() for tensor in self.tensors())

    def sized(self) -> DeviceTensor:
        """The larger tensor: its bytes are the size that bandwidths refer to, as in nccl-tests."""
        return max(self.tensors(), key=lambda tensor: tensor.nbytes)


def check_call(collective: Collective, call: Call, size: int, rank: int) -> None:
    """Check the call of a rank in a group of ``size``.

    Raises:
        ValueError: an operator or a root that it does not take, tensors that do not fit, or that share memory.
    """
    _check_values(collective, call, size)
    tensors = call.tensors()
    if not tensors:
        raise ValueError(f"{collective.name} needs a tensor")
    root, every = (call.values or (0,))[0], range(units(collective.cut, size))
    for what, tensor, has in (("source", call.source, collective.holds), ("result", call.result, collective.needs)):
        if tensor is None and any(has(unit, rank, size, root) for unit in every):
            raise ValueError(f"{collective.name}: rank {rank} of the group gives no {what}, and needs one")
    if call.op == AVG and not tensors[0].dtype.is_float:
        raise ValueError(f"{collective.name}: op 'avg' needs a floating type, not {tensors[0].dtype}")
    for each in tensors:
        _check_shards(collective, each.dp)
    if call.source is not None and call.result is not None:
        _check_pair(collective, call.source, call.result, size)
        _check_memory(collective, call.source, call.result, size, rank)


def check_rows(
    collective: Collective, call: Call, size: int, n_cubes: int, layout: tuple[str, str] | None = None
) -> None:
    """Check a call of a collective ``per_cube`` on ``size`` SIPs of ``n_cubes``. ``layout``: the algorithm's, if any.

    Raises:
        ValueError: an operator or a root that it does not take, or tensors that do not fit.
    """
    name, source, result = collective.name, call.source, call.result
    if name == INTERCUBE and call.op in REDUCTIONS and call.op not in collective.ops:
        other = f"all_reduce(tensor, op={call.op!r}, algorithm='auto') combines elementwise over ranks"
        raise ValueError(f"intercube_all_reduce takes op 'sum', not {call.op!r}; {other}")
    _check_values(collective, call, size)
    for tensor in call.tensors():
        _check_layout(collective, tensor.dp, n_cubes, layout)
    if source is None or result is None:
        raise ValueError(f"{name} needs a source and a result")
    if source.dtype != result.dtype:
        raise ValueError(f"{name} converts no types: source {source.dtype}, result {result.dtype}")
    of_source, of_result = collective.elements(1, size)
    have = source.elements_per_cube(), result.elements_per_cube()
    wanted = of_source * call.n_elem(), of_result * call.n_elem()
    if have != wanted:
        what = f"source and result have {have[0]} and {have[1]} elements a cube"
        raise ValueError(f"{name}: {what}; with {size} ranks it takes {wanted[0]} and {wanted[1]}")


def _check_values(collective: Collective, call: Call, size: int) -> None:
    name, ops = collective.name, collective.ops or (NO_OP,)
    if call.op not in ops:
        raise ValueError(f"op {call.op!r} is not available; {name} takes {', '.join(map(repr, ops))}")
    if len(call.values) != collective.has_root:
        needs = "the rank of a root" if collective.has_root else "no root"
        raise ValueError(f"{name} takes {needs}, and the call has {list(call.values)}")
    if collective.has_root and not 0 <= call.values[0] < size:
        raise ValueError(f"{name}: rank {call.values[0]} is not in the group, whose ranks are 0 to {size - 1}")


def _check_layout(collective: Collective, dp: Layout, n_cubes: int, layout: tuple[str, str] | None) -> None:
    """One PE a cube shares nothing, however that is named. On how many PEs of a cube an algorithm runs is another
    matter (``Communicator.check_holders``).
    """
    name, needs = collective.name, f"{collective.name} needs a row a cube"
    if dp.num_cubes != n_cubes:
        raise ValueError(f"{needs}: the tensor lies on {dp.num_cubes} of {n_cubes} cubes")
    if layout is not None:
        fits = dp.num_pes == 1 or dp.pe == layout[1] != COPIES
        if dp.cube != layout[0] or not fits:
            have = f"cube={dp.cube!r}, pe={dp.pe!r}, num_pes={dp.num_pes}"
            takes = f"cube={layout[0]!r}, " + ("num_pes=1" if layout[1] == COPIES else f"pe={layout[1]!r} on all PEs")
            raise ValueError(f"{name}: the algorithm takes DPPolicy({takes}), and the tensor has {have}")
        return
    for who, how in (("cubes", dp.cube), ("PEs", dp.pe)):
        if how == "column_wise":
            raise ValueError(f"{needs}: the tensor's {who} have columns of it")
    if dp.cube != "row_wise":
        raise ValueError(f"{needs}: the tensor's cubes have copies of all rows")


def _check_shards(collective: Collective, dp: Layout) -> None:
    for layout, count, who in ((dp.cube, dp.num_cubes, "cubes"), (dp.pe, dp.num_pes, "PEs")):
        if count > 1 and layout == COPIES:
            raise ValueError(f"{collective.name}: {count} {who} have copies of the tensor; it takes row_wise ones")
        if count > 1 and layout == "column_wise" and collective.cut != VECTOR:
            raise ValueError(f"{collective.name}: {count} {who} share the tensor's columns; it takes row_wise ones")


def _check_pair(collective: Collective, source: DeviceTensor, result: DeviceTensor, size: int) -> None:
    name = collective.name
    if source.dtype != result.dtype:
        raise ValueError(f"{name} converts no types: source {source.dtype}, result {result.dtype}")
    if source.dp.places() != result.dp.places():
        raise ValueError(f"{name}: source and result lie on other PEs than each other")
    of_source, of_result = collective.elements(1, size)
    if source.numel() * of_result != result.numel() * of_source:
        what = f"{source.numel()} and {result.numel()} elements"
        wanted = f"{of_result // of_source} times" if of_result >= of_source else f"1/{of_source} of"
        raise ValueError(
            f"{name}: source and result have {what}; with {size} ranks the result has {wanted} the source's"
        )


def _check_memory(collective: Collective, source: DeviceTensor, result: DeviceTensor, size: int, rank: int) -> None:
    """In one tensor, a rank's own part at its place is not moved; all else would be written before it is read."""
    if source is result and collective.in_place:
        return
    own, other = source.ranges(), result.ranges()
    if not overlap(own, other):
        return
    takes = "two tensors"
    if collective.cut == RANKS:
        small, large = (own, other) if collective.gathers else (other, own)
        nbytes = min(source.nbytes, result.nbytes)
        there, elsewhere = split(large, rank * nbytes, nbytes)
        if there == joined(small) and not overlap(small, elsewhere):
            return
        takes = f"two tensors, or part {rank} of the larger one as the smaller one on rank {rank} of the group"
    elif size == 1 and joined(own) == joined(other):
        return
    raise ValueError(f"{collective.name}: source and result share memory; it takes {takes}")


def overlap(one: Sequence[Range], other: Sequence[Range]) -> bool:
    """Whether some byte lies in both: a kernel reads the source of a call while it writes the result."""
    stops = [0, 0]
    for start, stop, which in sorted([(*each, 0) for each in one] + [(*each, 1) for each in other]):
        if start < stops[1 - which]:
            return True
        stops[which] = max(stops[which], stop)
    return False


def split(ranges: Sequence[Range], first: int, nbytes: int) -> tuple[list[Range], list[Range]]:
    """The bytes from number ``first`` on, ``nbytes`` of them in the order of the ranges; and all others."""
    inside: list[Range] = []
    outside: list[Range] = []
    number = 0
    for start, stop in ranges:
        cuts = [min(max(start + at - number, start), stop) for at in (first, first + nbytes)]
        inside.append((cuts[0], cuts[1]))
        outside += [(start, cuts[0]), (cuts[1], stop)]
        number += stop - start
    return joined(inside), joined(outside)


def joined(ranges: Sequence[Range]) -> list[Range]:
    """The same bytes in the same order, ranges that continue each other as one, and none without bytes."""
    found: list[Range] = []
    for start, stop in ranges:
        if start == stop:
            continue
        if found and found[-1][1] == start:
            start = found.pop()[0]
        found.append((start, stop))
    return found


GROUPS = -1
"""The group of calls that make and destroy groups, which all ranks of a run make in one order."""
WORLD = 0
"""The group of all ranks. A lesser number than those two: messages from one rank to another."""
PART = "; "
SAME = "every rank must make the same calls in the same order"
"""The end of messages about calls."""
NEW_GROUP = "new_group"
"""What calls that make groups begin with, and all ranks of a run make."""


class GroupCall(msgspec.Struct, frozen=True):
    """A call in group ``group`` of the ranks ``sips``, empty for all ranks of the run.

    ``text``: its parts, the plainest first: what is called, in which group, how it is carried out. Ranks that make the
    same call have the same text. ``nbytes``: of a message from one rank to another.
    """

    text: str
    group: int = WORLD
    sips: tuple[int, ...] = ()
    nbytes: int = 0


class Told(NamedTuple):
    """Two calls, each with what sets it apart from the other."""

    one: str
    other: str


def what_of(text: str) -> str:
    """What is called."""
    return text.partition(PART)[0]


def differing(one: str, other: str) -> Told:
    """Two calls by their texts: what is called, and of the other parts the first in which they differ, if need be."""
    pairs = list(zip(one.split(PART), other.split(PART), strict=False))
    shown = pairs[:1]
    shown += [pair for pair in pairs[1:2] if pair[0] != pair[1]]
    if all(mine == its for mine, its in shown):
        shown += [pair for pair in pairs[2:] if pair[0] != pair[1]]
    return Told(*(", ".join(texts) for texts in zip(*shown, strict=True)))


def group_name(number: int, sips: tuple[int, ...]) -> str:
    """A group in messages: its ranks in their order, of many in a row the first and the last."""
    if number == WORLD:
        return "the group of all ranks"
    if number < GROUPS:
        return f"those from rank {sips[0]} to rank {sips[1]}"
    if len(sips) > 2 and sips == tuple(range(sips[0], sips[0] + len(sips))):
        return f"group {number} of ranks {sips[0]} to {sips[-1]}"
    return f"group {number} of rank{'s' if len(sips) > 1 else ''} {', '.join(map(str, sips))}"


CallKey = tuple[int, int]
"""A group, and the number of a call in it."""


class OpenCall(msgspec.Struct, frozen=True):
    """A collective that has not ended on a rank: call ``number``, from 1, of group ``group`` of the ranks ``sips``.

    ``behind``: the open calls that it waits for the end of, as they are before it on one of its PEs, or use its room.
    """

    group: int
    sips: tuple[int, ...]
    number: int
    text: str
    behind: tuple[CallKey, ...] = ()

    @property
    def key(self) -> CallKey:
        """The same on all ranks that make it."""
        return self.group, self.number


def open_call_text(call: OpenCall) -> str:
    """Such a call in messages."""
    return f"{what_of(call.text)}, {place_of(call.number, call.group, call.sips)}"


def place_of(number: int, group: int, sips: tuple[int, ...]) -> str:
    """Call ``number``, from 1, of a group in messages."""
    return f"{'message' if group < GROUPS else 'call'} {number} of {group_name(group, sips)}"
