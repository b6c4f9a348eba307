"""One rank's call of a collective: its tensors, the checks of these tensors, and the text of a call in messages."""

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import msgspec
import numpy as np

from sipsim.collectives.reduction import AVG, NO_OP, REDUCTIONS
from sipsim.collectives.schedule import RANKS, VECTOR, units
from sipsim.collectives.semantics import INTERCUBE, Collective
from sipsim.core.dtypes import DType

Range = tuple[int, int]
"""(start, stop): the address of the first byte, and the address after the last byte."""


Array = np.ndarray[Any, Any]

COPIES = "replicate"
"""Layout of a tensor of which every PE holds all data of the PE's cube; with one PE per cube, that of ADR-0032."""


class TensorLayout(Protocol):
    """Distribution of a tensor over the cubes and PEs of its SIP (``DPPolicy``)."""

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
    """The part of a device tensor's interface that collectives use."""

    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def dtype(self) -> DType: ...
    @property
    def dp(self) -> TensorLayout: ...
    @property
    def nbytes(self) -> int: ...
    def numel(self) -> int: ...
    def elements_per_cube(self) -> int: ...
    def storages(self) -> tuple[object, ...]: ...
    def ranges(self) -> list[Range]:
        """Return the address ranges of the tensor, in element order."""

    def peek(self) -> Array:
        """Return all elements in no simulated time."""


class Call(NamedTuple):
    """One rank's call of a collective, passed from the host script to the launch and to the result's records.

    The kernel reads ``source`` and writes ``result``; both may be one tensor. A field is None if this rank needs no
    such tensor, like the result of a gather on ranks other than the root. Kernel arguments: the source's address, the
    result's address if it is another tensor, ``values`` (such as the root's rank), the values of ``kernel_args()``.

    ``collective`` is None for a point-to-point message. Planning sets the other fields: ``group``, the number of the
    process group, and its SIPs ``sips``; ``number``, the position among the group's calls, from 1; ``algorithm``;
    ``text``, equal on all ranks of the call; ``workers``, the number of PEs that share the schedule (0 if there is no
    schedule); ``elements``, the number of elements of the call's larger tensor, even on ranks without this tensor.
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
        """True if the schedule kernel runs this call, False if a kernel that was wired before the run does."""
        return self.workers > 0

    def tensors(self) -> tuple[DeviceTensor, ...]:
        """Return this rank's distinct tensors: the source, and the result if it is another tensor."""
        tensors = (self.source,) if self.result is self.source else (self.source, self.result)
        return tuple(tensor for tensor in tensors if tensor is not None)

    def n_elem(self) -> int:
        """Return the elements per cube of the smaller tensor, the ``n_elem`` argument of ``kernel_args``."""
        return min(tensor.elements_per_cube() for tensor in self.tensors())

    def larger_tensor(self) -> DeviceTensor:
        """Return the larger tensor, whose bytes are the message size in bandwidth figures, as in nccl-tests."""
        return max(self.tensors(), key=lambda tensor: tensor.nbytes)


def check_call(collective: Collective, call: Call, size: int, rank: int) -> None:
    """Check the call of a rank in a group of ``size``.

    Raises:
        ValueError: the operator or the root is not allowed, or the tensors do not match or share memory.
    """
    _check_values(collective, call, size)
    tensors = call.tensors()
    if not tensors:
        raise ValueError(f"{collective.name} needs a tensor")
    root, numbers = (call.values or (0,))[0], range(units(collective.cut, size))
    for role, tensor, has in (("source", call.source, collective.holds), ("result", call.result, collective.needs)):
        if tensor is None and any(has(unit, rank, size, root) for unit in numbers):
            raise ValueError(f"{collective.name}: rank {rank} of the group passes no {role}; pass a tensor")
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
    """Check a ``per_cube`` call on ``size`` SIPs of ``n_cubes``. ``layout``: (cube, pe) layout, None if any is allowed.

    Raises:
        ValueError: the operator or the root is not allowed, or the tensors do not match.
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
        what = f"source and result have {have[0]} and {have[1]} elements per cube"
        raise ValueError(f"{name}: {what}; with {size} ranks they must have {wanted[0]} and {wanted[1]}")


def _check_values(collective: Collective, call: Call, size: int) -> None:
    name, ops = collective.name, collective.ops or (NO_OP,)
    if call.op not in ops:
        raise ValueError(f"op {call.op!r} is not available; {name} takes {', '.join(map(repr, ops))}")
    if len(call.values) != collective.has_root:
        needs = "one root rank" if collective.has_root else "no root rank"
        raise ValueError(f"{name} takes {needs}, but the call gives {list(call.values)}")
    if collective.has_root and not 0 <= call.values[0] < size:
        raise ValueError(f"{name}: rank {call.values[0]} is not in the group, whose ranks are 0 to {size - 1}")


def _check_layout(collective: Collective, dp: TensorLayout, n_cubes: int, layout: tuple[str, str] | None) -> None:
    """Check the layout of a tensor; with one PE per cube, any layout over PEs is accepted."""
    name, needs = collective.name, f"{collective.name} needs one row per cube"
    if dp.num_cubes != n_cubes:
        raise ValueError(f"{needs}: the tensor lies on {dp.num_cubes} of {n_cubes} cubes; use all cubes")
    if layout is not None:
        fits = dp.num_pes == 1 or dp.pe == layout[1] != COPIES
        if dp.cube != layout[0] or not fits:
            have = f"cube={dp.cube!r}, pe={dp.pe!r}, num_pes={dp.num_pes}"
            takes = f"cube={layout[0]!r}, " + ("num_pes=1" if layout[1] == COPIES else f"pe={layout[1]!r} on all PEs")
            raise ValueError(f"{name}: the algorithm takes DPPolicy({takes}), and the tensor has {have}")
        return
    for units_of_chip, layout_name in (("cubes", dp.cube), ("PEs", dp.pe)):
        if layout_name == "column_wise":
            raise ValueError(f"{needs}: the tensor is divided over {units_of_chip} by columns; use row_wise")
    if dp.cube != "row_wise":
        raise ValueError(f"{needs}: each of the tensor's cubes holds a copy of all rows; use row_wise")


def _check_shards(collective: Collective, dp: TensorLayout) -> None:
    for layout, count, holders in ((dp.cube, dp.num_cubes, "cubes"), (dp.pe, dp.num_pes, "PEs")):
        if count > 1 and layout == COPIES:
            raise ValueError(f"{collective.name}: {count} {holders} hold copies of the tensor; use row_wise")
        if count > 1 and layout == "column_wise" and collective.cut != VECTOR:
            raise ValueError(f"{collective.name}: {count} {holders} share the tensor's columns; use row_wise")


def _check_pair(collective: Collective, source: DeviceTensor, result: DeviceTensor, size: int) -> None:
    name = collective.name
    if source.dtype != result.dtype:
        raise ValueError(f"{name} converts no types: source {source.dtype}, result {result.dtype}")
    if source.dp.places() != result.dp.places():
        raise ValueError(f"{name}: source and result lie on different PEs; give both one DPPolicy")
    of_source, of_result = collective.elements(1, size)
    if source.numel() * of_result != result.numel() * of_source:
        what = f"{source.numel()} and {result.numel()} elements"
        wanted = f"{of_result // of_source} times" if of_result >= of_source else f"1/{of_source} of"
        raise ValueError(
            f"{name}: source and result have {what}; with {size} ranks the result must have {wanted} the source's"
        )


def _check_memory(collective: Collective, source: DeviceTensor, result: DeviceTensor, size: int, rank: int) -> None:
    """Check that source and result share no memory but the rank's part of the larger tensor, where no data moves."""
    if source is result and collective.in_place:
        return
    read, written = source.ranges(), result.ranges()
    if not overlap(read, written):
        return
    advice = "give two separate tensors"
    if collective.cut == RANKS:
        small, large = (read, written) if collective.gathers else (written, read)
        nbytes = min(source.nbytes, result.nbytes)
        part, others = split(large, rank * nbytes, nbytes)
        if part == merged_ranges(small) and not overlap(small, others):
            return
        advice += f", or on rank {rank} of the group part {rank} of the larger tensor as the smaller tensor"
    elif size == 1 and merged_ranges(read) == merged_ranges(written):
        return
    raise ValueError(f"{collective.name}: source and result share memory; {advice}")


def overlap(one: Sequence[Range], other: Sequence[Range]) -> bool:
    """Return whether two lists of ranges have a byte in common."""
    stops = [0, 0]
    for start, stop, which in sorted([(*each, 0) for each in one] + [(*each, 1) for each in other]):
        if start < stops[1 - which]:
            return True
        stops[which] = max(stops[which], stop)
    return False


def split(ranges: Sequence[Range], first: int, nbytes: int) -> tuple[list[Range], list[Range]]:
    """Split ranges by byte offset in their order: ``nbytes`` bytes from offset ``first`` on, and all other bytes."""
    inside: list[Range] = []
    outside: list[Range] = []
    number = 0
    for start, stop in ranges:
        cuts = [min(max(start + offset - number, start), stop) for offset in (first, first + nbytes)]
        inside.append((cuts[0], cuts[1]))
        outside += [(start, cuts[0]), (cuts[1], stop)]
        number += stop - start
    return merged_ranges(inside), merged_ranges(outside)


def merged_ranges(ranges: Sequence[Range]) -> list[Range]:
    """Return the ranges with adjacent ones merged and empty ones removed; bytes and order are unchanged."""
    merged: list[Range] = []
    for start, stop in ranges:
        if start == stop:
            continue
        if merged and merged[-1][1] == start:
            start = merged.pop()[0]
        merged.append((start, stop))
    return merged


GROUPS = -1
"""Group number of the calls that create and destroy groups; all ranks of a run make these calls in one order."""
WORLD = 0
"""The number of the group of all ranks. Numbers below ``GROUPS`` are point-to-point connections of two ranks."""
PART = "; "
SAME = "every rank must make the same calls in the same order"
"""The last part of messages about mismatched calls."""
NEW_GROUP = "new_group"
"""Prefix in the text of a call that creates a group; all ranks of a run make this call."""


class GroupCall(msgspec.Struct, frozen=True):
    """A call in the group numbered ``group``, of the ranks ``sips`` (empty: all ranks of the run).

    ``text``: the operation, the group and how the call is carried out, joined by ``PART``. Ranks that make the same
    call have the same text. ``nbytes``: size of a point-to-point message, 0 for other calls.
    """

    text: str
    group: int = WORLD
    sips: tuple[int, ...] = ()
    nbytes: int = 0


class CallDifference(NamedTuple):
    """Texts of two different calls, each cut down to the parts that show the difference."""

    one: str
    other: str


def operation_of(text: str) -> str:
    """Return the operation of a call's text, such as ``all_reduce of 8 f32``."""
    return text.partition(PART)[0]


def call_difference(one: str, other: str) -> CallDifference:
    """Return the operations and groups of two call texts; if both are equal, the operations and all different parts."""
    pairs = list(zip(one.split(PART), other.split(PART), strict=False))
    shown = pairs[:1]
    shown += [pair for pair in pairs[1:2] if pair[0] != pair[1]]
    if all(first == second for first, second in shown):
        shown += [pair for pair in pairs[2:] if pair[0] != pair[1]]
    return CallDifference(*(", ".join(texts) for texts in zip(*shown, strict=True)))


def group_name(number: int, sips: tuple[int, ...]) -> str:
    """Return a group's name for messages: number and ranks; of consecutive ranks only the first and the last."""
    if number == WORLD:
        return "the group of all ranks"
    if number < GROUPS:
        return f"the messages from rank {sips[0]} to rank {sips[1]}"
    if len(sips) > 2 and sips == tuple(range(sips[0], sips[0] + len(sips))):
        return f"group {number} of ranks {sips[0]} to {sips[-1]}"
    return f"group {number} of rank{'s' if len(sips) > 1 else ''} {', '.join(map(str, sips))}"


CallKey = tuple[int, int]
"""(group number, number of a call in this group)."""


class OpenCall(msgspec.Struct, frozen=True):
    """A collective that has not ended on a rank: call ``number``, from 1, of group ``group`` of the ranks ``sips``.

    ``behind``: open calls that must end first, since they use a PE before this call or occupy its queue pairs' memory.
    """

    group: int
    sips: tuple[int, ...]
    number: int
    text: str
    behind: tuple[CallKey, ...] = ()

    @property
    def key(self) -> CallKey:
        """Identifier of the call, equal on all ranks that make the call."""
        return self.group, self.number


def open_call_text(call: OpenCall) -> str:
    """Return the operation and position of an open call for messages."""
    return f"{operation_of(call.text)}, {call_position(call.number, call.group, call.sips)}"


def call_position(number: int, group: int, sips: tuple[int, ...]) -> str:
    """Return the position of call ``number`` (from 1) of a group as text for messages."""
    return f"{'message' if group < GROUPS else 'call'} {number} of {group_name(group, sips)}"
