"""A collective as an interface, with the registry of all of them; one rank's call of it, and the text of calls.

A collective says what its tensors are, what they hold afterwards, and how its bandwidth is counted; an algorithm says
how the bytes move. A definition is a class with a ``name`` that :func:`collective` registers, in this package or in a
user's module. Its ``method`` becomes a method of ``torch.distributed``.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any, ClassVar, NamedTuple, Protocol

import msgspec
import numpy as np

from sipsim.collectives.testdata import Seeded
from sipsim.core.dtypes import DType
from sipsim.core.registry import Registry

Range = tuple[int, int]
"""The address of the first byte, and of the first one behind."""


Array = np.ndarray[Any, Any]

COPIES = "replicate"
"""The layout of PEs that divide nothing; with one PE a cube, ADR-0032's."""
NO_OP = "none"
"""The operator of a collective that moves data and combines none."""


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
    """One rank's call. ``source`` is read, ``result`` is written, and they may be one tensor. None: it has none,
    such as the result of a gather on other ranks than the root.

    A kernel gets the address of the source, that of the result if it is another tensor, then ``values`` (such as the
    rank of a root), then what the algorithm's ``kernel_args`` returns.
    """

    source: DeviceTensor | None
    result: DeviceTensor | None
    op: str = NO_OP
    values: tuple[int, ...] = ()

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


class Distributed(Protocol):
    """What a collective's ``method`` gets of ``torch.distributed``, as its first argument."""

    def run_collective(
        self,
        name: str,
        call: Call,
        async_op: bool,
        group: Any = None,
        algorithm: str = "",
        pes: Sequence[int] = (),
    ) -> Any:
        """Run it in a group, None for that of all ranks; the ``Work`` with ``async_op``, else None.

        Source and result may be lists of tensors, which become one. ``algorithm``: the one to use; empty: as the config
        says. ``pes``: of each cube, which may work for it; empty: those of the group.
        """

    def is_intercube(self, tensor: DeviceTensor) -> bool:
        """Whether the config makes an all-reduce of a tensor, without a group or an algorithm, ``intercube``."""


class Collective(ABC):
    """A definition. It has no state: all ranks of a process share it.

    ``about``: one line for ``--list``. ``ops``: the operators that it takes; none if it only moves data. ``in_place``:
    its source is its result. ``kernel_takes``: names of the kernel's first arguments, for messages.
    ``default_values``: the ``values`` of the built-in job's calls. ``is_default``: it runs where none is named.
    ``must_have``: what a definition has to say.
    """

    name: str
    about: str
    ops: tuple[str, ...] = ()
    in_place: bool = False
    kernel_takes: tuple[str, ...] = ("the tensor's address",)
    default_values: tuple[int, ...] = ()
    is_default: bool = False
    must_have: ClassVar[tuple[str, ...]] = ("name", "about", "method")
    method: Callable[..., Any]
    """Called as ``method(group, ...)``; makes a :class:`Call` and hands it to ``group.run_collective``. Those of this
    package are methods of ``torch.distributed`` under their function's name."""

    @abstractmethod
    def busbw_factor(self, size: int) -> Fraction:
        """Bus bandwidth by algorithm bandwidth in a group of ``size`` ranks, as in nccl-tests."""

    def elements(self, n_elem: int, size: int) -> tuple[int, int]:
        """Elements a cube of source and result when the smaller one has ``n_elem``; proportional to it."""
        return n_elem, n_elem

    def contributions(self, size: int, n_cubes: int) -> int:
        """How many elements are combined into one."""
        return 1

    def check(self, call: Call, size: int, n_cubes: int, layout: tuple[str, str] | None = None) -> None:
        """Check a call on SIPs of ``n_cubes`` in a group of ``size``. ``layout``: the one that the algorithm takes.

        Raises:
            ValueError: an operator that it does not take, or tensors that do not fit.
        """
        ops = self.ops or (NO_OP,)
        if call.op not in ops:
            raise ValueError(f"op {call.op!r} is not available; allowed: {', '.join(map(repr, ops))}")
        for tensor in call.tensors():
            if tensor.dp.num_cubes != n_cubes:
                lies = f"the tensor lies on {tensor.dp.num_cubes} of {n_cubes} cubes"
                raise ValueError(f"{self.name} needs a row a cube: {lies}")
            if layout is not None:
                self._check_layout(tensor.dp, layout)
                continue
            for who, how in (("cubes", tensor.dp.cube), ("PEs", tensor.dp.pe)):
                if how == "column_wise":
                    raise ValueError(f"{self.name} needs a row a cube: the tensor's {who} have columns of it")
            if tensor.dp.cube != "row_wise":
                raise ValueError(f"{self.name} needs a row a cube: the tensor's cubes have copies of all rows")
        source, result = call.source, call.result
        if source is None or result is None:
            raise ValueError(f"{self.name} needs a source and a result")
        if source.dtype != result.dtype:
            raise ValueError(f"{self.name} converts no types: source {source.dtype}, result {result.dtype}")
        have, wanted = (source.elements_per_cube(), result.elements_per_cube()), self.elements(call.n_elem(), size)
        if have != wanted:
            what = f"source and result have {have[0]} and {have[1]} elements a cube"
            raise ValueError(f"{self.name}: {what}; with {size} ranks it takes {wanted[0]} and {wanted[1]}")

    def _check_layout(self, dp: Layout, layout: tuple[str, str]) -> None:
        """One PE a cube shares nothing, however that is named. On how many PEs of a cube an algorithm runs is another
        matter (``Communicator.check_holders``).
        """
        fits = dp.num_pes == 1 or dp.pe == layout[1] != COPIES
        if dp.cube != layout[0] or not fits:
            have = f"cube={dp.cube!r}, pe={dp.pe!r}, num_pes={dp.num_pes}"
            takes = f"cube={layout[0]!r}, " + ("num_pes=1" if layout[1] == COPIES else f"pe={layout[1]!r} on all PEs")
            raise ValueError(f"{self.name}: the algorithm takes DPPolicy({takes}), and the tensor has {have}")

    def results(self, inputs: Sequence[Array], values: tuple[int, ...]) -> Sequence[Array | None]:
        """Every rank's result from every rank's source, arrays of shape (cubes, elements a cube).

        None for a rank whose result may be anything, such as all but the root of a gather: it is not compared.
        Of a collective that only moves data. What one with operators leaves in floating types depends on the order of
        its additions, which the algorithm's ``reference`` knows.
        """
        raise NotImplementedError(f"{self.name} has operators, and no results of its own")

    def expected(self, data: Seeded, rank: int, values: tuple[int, ...]) -> Array | None:
        """The result of ``rank`` on seeded sources, exactly; an array that can be broadcast to its shape, or None."""
        result = self.results([data.rows(each) for each in range(data.ranks)], values)[rank]
        return None if result is None else result.astype(data.dtype.numpy)


COLLECTIVES: Registry[Collective] = Registry(
    "collective",
    {
        "sipsim.collectives.semantics": (
            "all_gather",
            "all_reduce",
            "all_to_all",
            "broadcast",
            "gather",
            "intercube",
            "reduce",
            "reduce_scatter",
            "scatter",
        )
    },
    objects_of=Collective,
)


def collective(definition: type[Collective]) -> type[Collective]:
    """Class decorator that registers a definition under its ``name``.

    Raises:
        TypeError: when it is incomplete; the message lists what is missing.
    """
    if missing := _missing(definition):
        raise TypeError(f"collective {definition.__name__} is incomplete: it has no {', '.join(missing)}")
    COLLECTIVES.register(definition.name)(definition())
    return definition


def _missing(definition: type[Collective]) -> list[str]:
    """What a definition lacks. With operators it says what is ``expected``, without them what its ``results`` are."""
    missing = [name for name in definition.must_have if not hasattr(definition, name)]
    missing += sorted(definition.__abstractmethods__)
    if definition.results is Collective.results:
        if not definition.ops:
            missing.append("results")
        elif definition.expected is Collective.expected:
            missing.append("expected")
    return missing


def default_collective() -> str:
    """The name of the collective that runs where none is named."""
    return next(name for name in COLLECTIVES.names() if COLLECTIVES.get(name).is_default)


def operators() -> list[str]:
    """Every operator that some collective takes."""
    return sorted({op for name in COLLECTIVES.names() for op in COLLECTIVES.get(name).ops})


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
