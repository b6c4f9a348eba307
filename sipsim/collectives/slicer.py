"""Slices of a tensor for the workers of a ring's ranks, such that no worker waits for ever for a slot. Pure.

A reduce-scatter cuts a tensor along one dimension into *fractures*, one for each rank. Where a worker sends a slice of
one fracture as a whole before it receives that of the next, as in the Tenstorrent CCL guide, a slice must fit the ring
of slots in front of the neighbour: nothing else holds it. All fractures are cut along the same lines, and slices of one
worker follow each other through all fractures.

*Bound.* In turn ``t`` a worker sends the ``m_t`` messages of its next ``ahead`` slices and then receives as many. It
never waits for ever if ``m_t`` is at most ``n_slots`` in all turns, and it does if all ranks have one that is larger.

Take a worker that is the farthest behind: in the earliest turn, and in that still sending rather than receiving. If it
waits for a slot, its neighbour has ``n_slots`` messages that it has not received. The neighbour is not in an earlier
turn, so it has received those of all earlier ones: all belong to this turn, and there is one more to send; so ``m_t``
is more than ``n_slots``. If it waits for a message, the neighbour before it is in the same turn and receives, or in a
later one; either way it has sent all of this turn. Conversely, if ``m_t`` is more than ``n_slots`` in the first turn,
every rank sends ``n_slots`` messages, and all wait for a slot that only a receive frees. So ``n_slots // m`` slices of
``m`` messages may be in flight before a receive (:func:`slices_in_flight`), and slices are made of ``n_slots // ahead``
messages at most.
"""

from itertools import product
from math import prod
from typing import NamedTuple

Shape = tuple[int, ...]


class Slice(NamedTuple):
    """A box within a fracture: its first element by dimension, and its lengths."""

    offset: Shape
    shape: Shape


class Slicing(NamedTuple):
    """``shape``: of the tensor; ``dim``: the dimension that is cut for ``ranks`` ranks. ``of_workers``: the slices of
    each worker, in order, of the largest fracture; every fracture is cut along the same lines.
    """

    shape: Shape
    dim: int
    ranks: int
    message: int
    of_workers: list[list[Slice]]

    def fracture(self, rank: int) -> tuple[int, int]:
        """The first place along ``dim`` of a rank's fracture, and the first behind it."""
        length = self.shape[self.dim]
        return length * rank // self.ranks, length * (rank + 1) // self.ranks

    def within(self, part: Slice, rank: int) -> Slice:
        """A slice of a rank's fracture, in places of the tensor. Of length 0 where the fracture is too short."""
        first, stop = self.fracture(rank)
        start = first + part.offset[self.dim]
        length = max(min(part.shape[self.dim], stop - start), 0)
        return Slice(_with(part.offset, self.dim, start), _with(part.shape, self.dim, length))

    def messages(self, part: Slice, rank: int) -> int:
        """Messages of a slice of a rank's fracture: of contiguous elements, ``message`` at most."""
        return _messages(self.within(part, rank).shape, self.shape, self.message)


def slice_tensor(
    shape: Shape, dim: int, ranks: int, workers: int, message: int, n_slots: int, ahead: int = 1
) -> Slicing:
    """Slices as large as slots allow, a share of the work for each worker; worker ``w`` has every ``workers``-th one.

    ``message``: elements that fit a slot. ``ahead``: slices that a worker sends before it receives.

    Raises:
        ValueError: when ``ahead`` slices of one message each do not fit ``n_slots``, or a size is less than 1.
    """
    if min(*shape, ranks, workers, message, n_slots, ahead) < 1:
        raise ValueError("sizes, ranks, workers, elements of a message, slots and slices ahead must be 1 or more")
    if ahead > n_slots:
        raise ValueError(f"{ahead} slices before a receive do not fit {n_slots} slots")
    fracture = _with(shape, dim, -(-shape[dim] // ranks))
    most = -(-prod(fracture) // workers)
    size = [1] * len(shape)
    for axis in reversed(range(len(shape))):
        fits = (
            length
            for length in range(fracture[axis], 1, -1)
            if prod(size) * length <= most
            and _messages(_with(tuple(size), axis, length), shape, message) <= n_slots // ahead
        )
        size[axis] = next(fits, 1)
        if size[axis] < fracture[axis]:
            break
    starts = product(*(range(0, whole, step) for whole, step in zip(fracture, size, strict=True)))
    slices = [
        Slice(start, tuple(min(step, whole - at) for at, step, whole in zip(start, size, fracture, strict=True)))
        for start in starts
    ]
    return Slicing(shape, dim, ranks, message, [slices[worker::workers] for worker in range(workers)])


def slices_in_flight(messages: int, n_slots: int) -> int:
    """How many slices of so many messages each worker may send before it receives one."""
    return n_slots // messages


def _messages(box: Shape, shape: Shape, message: int) -> int:
    """Of a box in a tensor: each run of contiguous elements is cut in messages."""
    run, axis = 1, len(shape)
    while axis and run == prod(shape[axis:]):
        axis -= 1
        run *= box[axis]
    return prod(box[:axis]) * -(-run // message)


def _with(shape: Shape, axis: int, length: int) -> Shape:
    return (*shape[:axis], length, *shape[axis + 1 :])
