"""The kernel of every algorithm that is a schedule: it runs the instructions of its worker.

Loads and receives are issued some instructions ahead. A value that is forwarded stays in the TCM. A value is stored
when it is final; no send waits for a store.
"""

from collections import defaultdict, deque
from collections.abc import Iterator
from operator import itemgetter
from typing import TYPE_CHECKING

from sipsim.chips.ahbm.collectives.programs import NOWHERE, Instruction, Key, Program
from sipsim.chips.ahbm.tl.futures import Future
from sipsim.chips.ahbm.tl.values import Pointer, TensorHandle
from sipsim.collectives.reduction import MATH_OF
from sipsim.collectives.schedule import ARRIVED_FIRST

if TYPE_CHECKING:
    from sipsim.chips.ahbm.tl.language import TL

SMALL_BYTES = 1024
"""Receives of messages up to this size are issued without a limit while the next message has not arrived."""
Place = tuple[int, int]


def kernel_args(world_size: int, n_elem: int) -> tuple[()]:
    """Return no arguments (hook of ADR-0032 D7): the kernel gets its programs from the communicator."""
    return ()


def kernel(source: Pointer, result: Pointer, op: str, ranks: int, programs: dict[Place, Program], tl: "TL") -> None:
    """Run this PE's program, if ``programs`` has one. The keys of ``programs`` are (cube, PE).

    ``op`` combines values; ``avg`` adds them and divides final values by ``ranks``.
    """
    program, ahead = programs.get((tl.program_id(1), tl.program_id(0)), Program([]))
    loads, recvs = _Loads(source, program, ahead.loads, tl), _Receives(source, program, ahead.receives, tl)
    stores = _Stores(result, ranks if op == "avg" else 1, tl)
    values: dict[Key, TensorHandle] = {}
    for instruction in program:
        key, combines, send = instruction.key, instruction.combines, instruction.send
        loads.issue()
        recvs.issue()
        if instruction.load_at != NOWHERE:
            value = loads.value(instruction)
        elif key in values:
            value = values.pop(key)
        if instruction.recv:
            arrived = recvs.message()
            if combines == ARRIVED_FIRST:
                value, arrived = arrived, value
            value = combined(op, value, arrived, tl) if combines else arrived
        if send:
            tl.send(send, value)
        if instruction.store_at != NOWHERE:
            stores.add(instruction, value)
        if instruction.keeps:
            values[key] = value


class _Loads:
    """Loads of a program, one per tile or coalesced access, with up to ``ahead`` loads in flight.

    ``_joint``: values of coalesced loads with unused tiles, by the first element of the load.
    """

    def __init__(self, source: Pointer, program: list[Instruction], ahead: int, tl: "TL") -> None:
        self._source = source
        self._ahead = ahead
        self._tl = tl
        self._remaining = deque(_ranges(program))
        self._in_flight: deque[Future] = deque()
        self._joint: dict[int, TensorHandle] = {}

    def issue(self) -> None:
        """Issue loads up to the limit."""
        while self._remaining and len(self._in_flight) < self._ahead:
            first, count = self._remaining.popleft()
            self._in_flight.append(self._tl.load_async(_at(self._source, first), count))

    def value(self, instruction: Instruction) -> TensorHandle:
        """Wait for the value that an instruction loads from the source."""
        joint = instruction.load_with
        if joint is None:
            return self._tl.wait(self._in_flight.popleft())
        whole = self._tl.wait(self._in_flight.popleft()) if joint.is_first else self._joint.pop(joint.at)
        if not joint.is_last:
            self._joint[joint.at] = whole
        start = instruction.load_at - joint.at
        return whole[start : start + instruction.length]


class _Receives:
    """Receives of a program, with up to ``ahead`` receives posted."""

    def __init__(self, source: Pointer, program: list[Instruction], ahead: int, tl: "TL") -> None:
        self._ahead = ahead
        self._dtype = source.dtype
        self._small = SMALL_BYTES // source.dtype.itemsize
        self._tl = tl
        self._remaining = deque(instruction for instruction in program if instruction.recv)
        self._posted: deque[Future] = deque()

    def issue(self) -> None:
        """Post receives up to the limit."""
        while self._remaining and len(self._posted) < self._ahead:
            self._post()

    def message(self) -> TensorHandle:
        """Wait for the next message and return its value. Post small receives meanwhile, which saves time later."""
        while self._remaining and self._remaining[0].length <= self._small and not self._posted[0].is_completed():
            self._post()
        return self._tl.wait(self._posted.popleft())

    def _post(self) -> None:
        receive = self._remaining.popleft()
        self._posted.append(self._tl.recv_async(receive.recv, receive.length, self._dtype))


class _Stores:
    """Stores of final values, divided first for ``avg``. ``_joint``: parts of coalesced stores by first element."""

    def __init__(self, result: Pointer, divisor: int, tl: "TL") -> None:
        self._result = result
        self._divisor = divisor
        self._tl = tl
        self._joint: defaultdict[int, list[tuple[int, TensorHandle]]] = defaultdict(list)

    def add(self, instruction: Instruction, value: TensorHandle) -> None:
        """Store a value. A coalesced store waits for all parts and is one command, unless parts lie in ring slots."""
        joint = instruction.store_with
        if joint is None:
            self._store(instruction.store_at, value)
            return
        self._joint[joint.at].append((instruction.store_at, value))
        if not joint.is_last:
            return
        parts = sorted(self._joint.pop(joint.at), key=itemgetter(0))
        if any(each.in_slot is not None or each.slot_pa is not None for _, each in parts):
            for at, each in parts:
                self._store(at, each)
        else:
            self._store(joint.at, self._tl.join([each for _, each in parts]))

    def _store(self, at: int, value: TensorHandle) -> None:
        final = value if self._divisor == 1 else value / self._divisor
        self._tl.store_async(_at(self._result, at), final)


def _ranges(program: list[Instruction]) -> Iterator[tuple[int, int]]:
    """Yield (first element, number of elements) of each load command of a program."""
    for each in program:
        joint = each.load_with
        if joint is None and each.load_at != NOWHERE:
            yield each.load_at, each.length
        elif joint is not None and joint.is_first:
            yield joint.at, joint.length


def _at(pointer: Pointer, elements: int) -> Pointer:
    return pointer + elements * pointer.dtype.itemsize


def combined(op: str, first: TensorHandle, second: TensorHandle, tl: "TL") -> TensorHandle:
    """Combine two values with an operator. For ``avg`` return the sum, which the caller divides."""
    word = MATH_OF[op]
    if word == "add":
        return first + second
    if word == "mul":
        return first * second
    return tl.maximum(first, second) if word == "max" else tl.minimum(first, second)
