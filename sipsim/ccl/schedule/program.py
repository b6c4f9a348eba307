"""From a schedule to what each worker of a rank does: instructions for tiles, derived alike on every rank. Pure.

A *worker* is a PE that runs the kernel on its part of the elements. Parts follow each other in the order of elements,
those of all flows side by side, so that a worker's part lies in the memories near it where the tensor is spread alike.
"""

from collections.abc import Iterator
from itertools import pairwise, zip_longest
from typing import NamedTuple

from sipsim.ccl.collectives.group import Task
from sipsim.ccl.schedule.blocks import Block, Part, block_of, units
from sipsim.ccl.schedule.evaluate import Message, Tile, messages
from sipsim.ccl.schedule.steps import Flow, Schedule, Step

NOWHERE = -1
PART_BYTES = 2**21
"""Of a part that a worker has at a time: what it may hold at once is well below a kernel's room in the TCM, 14 MiB."""


class Shards(NamedTuple):
    """Elements of a PE's shard of source and of result: no access crosses the end of one. 0: no such tensor."""

    source: int
    result: int


class Instruction(NamedTuple):
    """What a worker does with one tile of ``length`` elements.

    It takes the tile's value: its own, loaded from ``load_at`` of the source or held since an earlier instruction, and
    what arrives in ``recv``, combined with it if it ``combines``. It sends the value in ``send``, stores it at
    ``store_at`` of the result, and holds it for a later instruction if it ``keeps`` it.
    """

    key: Message
    length: int
    load_at: int = NOWHERE
    recv: str = ""
    combines: bool = False
    send: str = ""
    store_at: int = NOWHERE
    keeps: bool = False


def programs(
    task: Task, schedule: Schedule, rank: int, n_workers: int, shards: Shards, tile: int
) -> list[list[Instruction]]:
    """The instructions of each of a rank's workers. ``tile``: elements of a message at most."""
    own = [work_of(task, schedule, worker, n_workers) for worker in range(n_workers)]
    return [_interleaved([[*_program(task, rank, share, shards, tile)] for share in shares]) for shares in own]


def work_of(task: Task, schedule: Schedule, worker: int, n_workers: int) -> list[tuple[Flow, list[Part]]]:
    """The flows of a worker, with its parts of each, one after the other.

    With as many workers as flows or more, each has one flow; with fewer, one worker has several.
    """
    whole = sum(flow.weight for flow in schedule)
    starts = [sum(flow.weight for flow in schedule[:index]) for index in range(len(schedule))]
    per_flow = max(n_workers // len(schedule), 1)
    mine = [number for number in range(per_flow * len(schedule)) if number % n_workers == worker]
    shares = []
    for number in mine:
        position, index = divmod(number, len(schedule))
        first = position * whole + starts[index]
        part = Part(first, first + schedule[index].weight, per_flow * whole)
        shares.append((schedule[index], _passes(task, part)))
    return shares


def _passes(task: Task, part: Part) -> list[Part]:
    """A part in pieces that a worker can hold."""
    width = part.stop - part.start
    nbytes = units(task.collective.cut, task.size) * task.n_elem * task.itemsize * width // part.whole
    count = max(-(-nbytes // PART_BYTES), 1)
    starts = range(part.start * count, part.stop * count, width)
    return [Part(start, start + width, part.whole * count) for start in starts]


def tiles_of(block: Block, shards: Shards, tile: int) -> list[Tile]:
    """A block's tiles: at most ``tile`` elements each, and none over the end of a shard."""
    cuts = {*range(0, block.length, tile)}
    for offset, shard in ((block.source, shards.source), (block.result, shards.result)):
        if shard:
            cuts.update(range(-offset % shard, block.length, shard))
    starts = sorted(cuts)
    return [*pairwise([*starts, block.length])]


def _program(task: Task, rank: int, share: tuple[Flow, list[Part]], shards: Shards, tile: int) -> Iterator[Instruction]:
    flow, parts = share
    steps = flow.steps_of(rank)
    for part in parts:
        yield from _Translation(task, rank, flow.pieces, part, shards, tile).instructions(steps)


class _Translation:
    """Of the steps of one rank on one part."""

    def __init__(self, task: Task, rank: int, pieces: int, part: Part, shards: Shards, tile: int) -> None:
        self._task = task
        self._rank = rank
        self._pieces = pieces
        self._part = part
        self._shards = shards
        self._tile = tile
        self._blocks: dict[int, tuple[Block, list[Tile]]] = {}

    def instructions(self, steps: list[Step]) -> list[Instruction]:
        """The steps tile by tile, sends and receives in turn, and copies of what only changes its place."""
        moves = [move for step in steps for move in self._moves(step)]
        last_recv = {key: index for index, (key, direction, _, is_send) in enumerate(moves) if not is_send}
        last_use = {key: index for index, (key, *_) in enumerate(moves)}
        held: set[Message] = set()
        found = []
        for index, (key, direction, combines, is_send) in enumerate(moves):
            needs_own = is_send or combines
            load_at = self._at(key, "source") if needs_own and key not in held else NOWHERE
            keeps = last_use[key] > index
            stores = not is_send and last_recv[key] == index and self._needs(key[0])
            held = held | {key} if keeps else held - {key}
            found.append(
                Instruction(
                    key,
                    key[2] - key[1],
                    load_at,
                    "" if is_send else direction,
                    combines,
                    direction if is_send else "",
                    self._at(key, "result") if stores else NOWHERE,
                    keeps,
                )
            )
        return [*found, *self._copies(last_recv)]

    def _moves(self, step: Step) -> Iterator[tuple[Message, str, bool, bool]]:
        """(tile, direction, whether it combines, whether it is a send)."""
        out, into = (messages(blocks, self._tiling) for blocks in (step.sends, step.recvs))
        for leaving, coming in zip_longest(out, into):
            if leaving is not None:
                yield leaving, step.send, False, True
            if coming is not None:
                yield coming, step.recv, step.combine, False

    def _copies(self, received: dict[Message, int]) -> Iterator[Instruction]:
        """Of what this rank has before, needs afterwards, and does not receive."""
        task, collective = self._task, self._task.collective
        for unit in range(units(collective.cut, task.size)):
            is_here = collective.holds(unit, self._rank, task.size, task.root)
            if not (is_here and collective.needs(unit, self._rank, task.size, task.root)):
                continue
            for piece in range(self._pieces):
                block = unit * self._pieces + piece
                for key in messages((block,), self._tiling):
                    source, result = self._at(key, "source"), self._at(key, "result")
                    if key not in received and not (task.in_place and source == result):
                        yield Instruction(key, key[2] - key[1], source, store_at=result)

    def _needs(self, block: int) -> bool:
        task = self._task
        return task.collective.needs(block // self._pieces, self._rank, task.size, task.root)

    def _at(self, key: Message, tensor: str) -> int:
        block, _ = self._block(key[0])
        return (block.source if tensor == "source" else block.result) + key[1]

    def _tiling(self, number: int) -> list[Tile]:
        return self._block(number)[1]

    def _block(self, number: int) -> tuple[Block, list[Tile]]:
        if number not in self._blocks:
            task, cut = self._task, self._task.collective
            block = block_of(cut.cut, cut.gathers, task.n_elem, task.size, self._part, self._pieces, number)
            self._blocks[number] = block, tiles_of(block, self._shards, self._tile)
        return self._blocks[number]


def _interleaved(programs: list[list[Instruction]]) -> list[Instruction]:
    """The programs of one worker's flows in turn, in the same order on every rank."""
    turns = zip_longest(*programs)
    return [instruction for turn in turns for instruction in turn if instruction is not None]
