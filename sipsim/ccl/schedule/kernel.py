"""The kernel of every algorithm that is a schedule: it carries out the instructions of its worker.

Loads and receives are issued some instructions ahead. A value that is sent on stays in the TCM; it is stored when it is
final, and no send waits for a store.
"""

from collections import deque
from typing import TYPE_CHECKING

from sipsim.ccl.operators import combined
from sipsim.ccl.schedule.program import NOWHERE, Instruction, Key
from sipsim.ccl.schedule.steps import ARRIVED_FIRST
from sipsim.tl.futures import LoadFuture, RecvFuture
from sipsim.tl.values import Pointer, TensorHandle

if TYPE_CHECKING:
    from sipsim.tl.language import TL

LOADS_AHEAD = 4
RECVS_AHEAD = 4
"""So the receives of the smallest messages are issued while the first value is loaded."""
Place = tuple[int, int]


def kernel_args(world_size: int, n_elem: int) -> tuple[()]:
    """None of its own (ADR-0032 D7): the kernel gets its instructions from the communicator."""
    return ()


def kernel(
    source: Pointer, result: Pointer, op: str, ranks: int, programs: dict[Place, list[Instruction]], tl: "TL"
) -> None:
    """Carry out the program of this PE, by (cube, PE), if it has one.

    ``op`` combines values; ``avg`` adds them and divides what is final by ``ranks``.
    """
    program = programs.get((tl.program_id(1), tl.program_id(0)), [])
    loads = deque(instruction for instruction in program if instruction.load_at != NOWHERE)
    recvs = deque(instruction for instruction in program if instruction.recv)
    coming: deque[LoadFuture] = deque()
    posted: deque[RecvFuture] = deque()
    values: dict[Key, TensorHandle] = {}
    for instruction in program:
        key, _, load_at, recv, combines, send, store_at, keeps = instruction
        while loads and len(coming) < LOADS_AHEAD:
            load = loads.popleft()
            coming.append(tl.load_async(_at(source, load.load_at), load.length))
        while recvs and len(posted) < RECVS_AHEAD:
            receive = recvs.popleft()
            posted.append(tl.recv_async(receive.recv, receive.length, source.dtype))
        if load_at != NOWHERE:
            value = tl.wait(coming.popleft())
        elif key in values:
            value = values.pop(key)
        if recv:
            arrived = tl.wait(posted.popleft())
            if combines == ARRIVED_FIRST:
                value, arrived = arrived, value
            value = combined(op, value, arrived, tl) if combines else arrived
        if send:
            tl.send(send, value)
        if store_at != NOWHERE:
            tl.store_async(_at(result, store_at), value / ranks if op == "avg" else value)
        if keeps:
            values[key] = value


def _at(pointer: Pointer, elements: int) -> Pointer:
    return pointer + elements * pointer.dtype.itemsize
