"""The programs of a rank's workers: a schedule as instructions for tiles, derived alike on every rank. Pure.

A *worker* is a PE that runs the kernel on its part of the elements. Parts follow each other in the order of elements,
those of all flows side by side, so that a worker's part lies in the memories near it where the tensor is spread alike.
"""

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator
from itertools import accumulate, pairwise, zip_longest
from operator import attrgetter
from typing import NamedTuple, TypeVar

from sipsim.collectives.schedule import REPLACE, Ahead, Block, Flow, Part, Schedule, Step, block_of, number_of, units
from sipsim.collectives.semantics import Task

T = TypeVar("T")


NOWHERE = -1
Tile = tuple[int, int]
"""A piece of a block that is one message: its first element, and the first behind it."""
Message = tuple[int, int, int]
"""A block, and a tile of it."""
Position = tuple[int, int, int]
"""Of an instruction among those of its flow: pass, round, and tile of the round."""
Key = tuple[int, ...]
"""Of a value that a worker holds: its flow, and its message."""
PARTS_OF_ROOM = 7
"""How many times what a worker has at a time fits its kernel's room in the TCM: it may hold a part of each of its flows
more than once, beside the tiles that it loads and receives."""


class Shards(NamedTuple):
    """Elements of a PE's shard of source and of result: no access crosses the end of one. 0: no such tensor."""

    source: int
    result: int


class Joint(NamedTuple):
    """An access of several tiles by one command: ``length`` elements from ``at`` on.

    A load comes with the first of their instructions, and a store with the last.
    """

    at: int
    length: int
    is_first: bool
    is_last: bool


class Instruction(NamedTuple):
    """What a worker does with one tile of ``length`` elements.

    It takes the tile's value: its own, loaded from ``load_at`` of the source or held since an earlier instruction, and
    what arrives in ``recv``, which replaces it or is combined with it (``combines``:
    :mod:`sipsim.collectives.schedule`). It sends the value in ``send``, stores it at ``store_at`` of the result,
    and holds it for a later instruction if it ``keeps`` it. ``load_with``, ``store_with``: those of several tiles.
    """

    key: Key
    length: int
    load_at: int = NOWHERE
    recv: str = ""
    combines: int = REPLACE
    send: str = ""
    store_at: int = NOWHERE
    keeps: bool = False
    load_with: Joint | None = None
    store_with: Joint | None = None


class Program(NamedTuple):
    """The instructions of a worker, and how far its kernel runs ahead of them."""

    instructions: list[Instruction]
    ahead: Ahead = Ahead()


def programs(
    task: Task, schedule: Schedule, rank: int, n_workers: int, shards: Shards, tile: int, sends: int = 0
) -> list[list[Instruction]]:
    """The instructions of each of a rank's workers: :func:`worker_program`."""
    return [worker_program(task, schedule, rank, each, n_workers, shards, tile, sends) for each in range(n_workers)]


def worker_program(
    task: Task, schedule: Schedule, rank: int, worker: int, n_workers: int, shards: Shards, tile: int, sends: int = 0
) -> list[Instruction]:
    """The instructions of one of a rank's workers. ``tile``: elements of a message at most.

    ``sends``: how many receives of a direction, on which it does not depend, a send may overtake; fewer than a ring has
    slots.
    """
    shares = work_of(task, schedule, worker, n_workers)
    merged = _merged([[*_program(task, rank, share, shards, tile)] for share in shares])
    return with_sends_ahead(merged, sends, _sends, _received, _is_of_tile)


_sends = attrgetter("send")


def _received(instruction: Instruction) -> tuple[str, int]:
    return instruction.recv, 1 if instruction.recv else 0


def _is_of_tile(send: Instruction, other: Instruction) -> bool:
    return send.key == other.key


def work_of(task: Task, schedule: Schedule, worker: int, n_workers: int) -> list[tuple[Flow, list[Part]]]:
    """The flows of a worker, with its parts of each, one after the other.

    With as many workers as flows or more, each has one flow; with fewer, one worker has several.
    """
    *starts, whole = accumulate((flow.weight for flow in schedule), initial=0)
    per_flow = max(n_workers // len(schedule), 1)
    mine = range(worker, per_flow * len(schedule), n_workers)
    shares = []
    for number in mine:
        position, index = divmod(number, len(schedule))
        first = position * whole + starts[index]
        part = Part(first, first + schedule[index].weight, per_flow * whole)
        shares.append((schedule[index], _passes(task, part, len(mine))))
    return shares


def passes_of(task: Task, width: int, whole: int, flows: int) -> int:
    """How often a worker of so many flows goes through one of them, of which it has ``width`` of ``whole`` of all data:
    each time with a part that it can hold.
    """
    nbytes = units(task.collective.cut, task.size) * task.n_elem * task.itemsize * width // whole
    return max(-(-nbytes * PARTS_OF_ROOM * flows // task.room_bytes), 1)


def _passes(task: Task, part: Part, flows: int) -> list[Part]:
    """A part in pieces, one for each pass."""
    width = part.stop - part.start
    count = passes_of(task, width, part.whole, flows)
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


def _messages(blocks: tuple[int, ...], tiling: Callable[[int], list[Tile]]) -> list[Message]:
    """The messages for blocks: the blocks in order, each cut into its tiles."""
    return [(block, start, stop) for block in blocks for start, stop in tiling(number_of(block))]


def _program(
    task: Task, rank: int, share: tuple[Flow, list[Part]], shards: Shards, tile: int
) -> Iterator[tuple[Position, Instruction]]:
    flow, parts = share
    steps = flow.steps_of(rank)
    for number, part in enumerate(parts):
        own = _Translation(task, rank, flow.pieces, part, shards, tile)
        for (turn, place), instruction in own.instructions(steps):
            yield (number, turn, place), instruction


class _Move(NamedTuple):
    """A tile that is sent or received in a round; ``place``: which of the tiles of its step it is."""

    key: Message
    round: int
    place: int
    direction: str
    combines: int
    is_send: bool


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
        self._stored: set[Message] = set()

    def instructions(self, steps: list[Step]) -> Iterator[tuple[tuple[int, int], Instruction]]:
        """The steps tile by tile, sends and receives in turn, and copies of what only changes its place."""
        moves = [move for step in steps for move in self._moves(step)]
        held: set[Message] = set()
        for move, (keeps, stores) in zip(moves, self._fates(moves), strict=True):
            key, sends = move.key, move.is_send
            load_at = self._at(key, "source") if (sends or move.combines) and key not in held else NOWHERE
            if load_at != NOWHERE and key[0] >= 0 and key not in self._stored and self._is_to_copy(key):
                # A rank's own part of the result, such as in an all-gather, is stored as it is sent.
                self._stored.add(key)
                stores = True
            (held.add if keeps else held.discard)(key)
            store_at = self._at(key, "result") if stores else NOWHERE
            send, recv = (move.direction, "") if sends else ("", move.direction)
            instruction = Instruction(key, key[2] - key[1], load_at, recv, move.combines, send, store_at, keeps)
            yield (move.round, move.place), instruction
        end = moves[-1].round + 1 if moves else 0
        for place, instruction in enumerate(self._copies()):
            yield (end, place), instruction

    def _fates(self, moves: list[_Move]) -> list[tuple[bool, bool]]:
        """Of each tile: whether its value is used again, and whether it has come for the last time and is a result."""
        later: dict[Message, _Move] = {}
        fates = []
        for move in reversed(moves):
            after = later.get(move.key)
            is_final = not move.is_send and move.key not in self._stored
            if is_final:
                self._stored.add(move.key)
            keeps = after is not None and bool(after.is_send or after.combines)
            fates.append((keeps, is_final and self._needs(move.key[0])))
            later[move.key] = move
        return fates[::-1]

    def _moves(self, step: Step) -> Iterator[_Move]:
        out, into = (_messages(blocks, self._tiling) for blocks in (step.sends, step.recvs))
        for place, (leaving, coming) in enumerate(zip_longest(out, into)):
            if leaving is not None:
                yield _Move(leaving, step.round, place, step.send, REPLACE, True)
            if coming is not None:
                yield _Move(coming, step.round, place, step.recv, step.combine, False)

    def _copies(self) -> Iterator[Instruction]:
        """Of what this rank has before, needs afterwards, and neither receives nor sends."""
        for number in range(units(self._task.collective.cut, self._task.size) * self._pieces):
            for key in _messages((number,), self._tiling) if self._is_own(number) else ():
                if key not in self._stored and self._is_to_copy(key):
                    source, result = self._at(key, "source"), self._at(key, "result")
                    yield Instruction(key, key[2] - key[1], source, store_at=result)

    def _is_own(self, block: int) -> bool:
        """Whether the rank has a block before and needs it afterwards."""
        task = self._task
        return self._needs(block) and task.collective.holds(block // self._pieces, self._rank, task.size, task.root)

    def _is_to_copy(self, key: Message) -> bool:
        is_there = self._task.in_place and self._at(key, "source") == self._at(key, "result")
        return self._is_own(key[0]) and not is_there

    def _needs(self, block: int) -> bool:
        task = self._task
        return task.collective.needs(block // self._pieces, self._rank, task.size, task.root)

    def _at(self, key: Message, tensor: str) -> int:
        block, _ = self._block(number_of(key[0]))
        return (block.source if tensor == "source" else block.result) + key[1]

    def _tiling(self, number: int) -> list[Tile]:
        return self._block(number)[1]

    def _block(self, number: int) -> tuple[Block, list[Tile]]:
        if number not in self._blocks:
            task, cut = self._task, self._task.collective
            block = block_of(cut.cut, cut.gathers, task.n_elem, task.size, self._part, self._pieces, number)
            self._blocks[number] = block, tiles_of(block, self._shards, self._tile)
        return self._blocks[number]


def _merged(programs: list[list[tuple[Position, Instruction]]]) -> list[Instruction]:
    """The programs of one worker's flows by position, which all ranks give a message alike; so none waits for ever."""
    if len(programs) == 1:
        return [instruction for _, instruction in programs[0]]
    numbered = [
        (position, flow, index, instruction._replace(key=(flow, *instruction.key)))
        for flow, program in enumerate(programs)
        for index, (position, instruction) in enumerate(program)
    ]
    return [instruction for *_, instruction in sorted(numbered, key=lambda each: each[:3])]


def with_sends_ahead(
    steps: Iterable[T],
    ahead: int,
    sends: Callable[[T], object],
    received: Callable[[T], tuple[str, int]],
    needs: Callable[[T, T], bool],
) -> list[T]:
    """Steps of a worker, each send before up to ``ahead`` of each direction's messages received before it, as long as
    it needs none of them: so a link is busy while a message is under way on it.

    ``sends``: whether a step sends; ``received``: from which direction one that does not send receives, and how many
    messages; ``needs``: whether the first of two steps, a send, needs the second.

    Sends keep their order, and so do receives. With rings of more than ``ahead`` slots no rank waits for ever: of the
    waiting ranks take one whose step had the least position (:mod:`sipsim.collectives.schedule`). If it is a send, a
    ring is full of messages of lesser positions. Its receiver waits at a position that is not less, so it has received
    all of them if it waits to receive, and all but ``ahead`` if it waits to send. If it is a receive, the sender waits
    at a position that is not less, and its send has been moved to the front if at all.
    """
    found: list[T] = []
    for step in steps:
        place, passed = len(found), Counter[str]()
        if ahead and sends(step):
            while place and not sends(found[place - 1]) and not needs(step, found[place - 1]):
                direction, messages = received(found[place - 1])
                passed[direction] += messages
                if passed[direction] > ahead:
                    break
                place -= 1
        found.insert(place, step)
    return found


def with_farthest_first(program: list[Instruction], n_slots: int, links_to: Callable[[str], int]) -> list[Instruction]:
    """The program with its first sends in order of their ways, that of most links first. ``links_to``: by direction.

    Only those that no receive comes before, and that find a free slot, so that none of them waits for a rank:
    whatever their order, each leaves.
    """
    first: list[Instruction] = []
    used = Counter[str]()
    for instruction in program:
        used[instruction.send] += 1
        if not instruction.send or instruction.recv or used[instruction.send] > n_slots:
            break
        first.append(instruction)
    of_key: defaultdict[Key, deque[Instruction]] = defaultdict(deque)
    for instruction in first:
        of_key[instruction.key].append(instruction)
    ordered = sorted(first, key=lambda instruction: -links_to(instruction.send))
    # What is sent in several directions is loaded by the first of its instructions and held by all but the last.
    moved = [of_key[instruction.key].popleft()._replace(send=instruction.send) for instruction in ordered]
    return [*moved, *program[len(first) :]]


JOINT_BYTES = 1024
"""They take a PE some 8 ns more than the first of them, and each further command 15 ns."""


class _Piece(NamedTuple):
    """Of an access: the instruction with that number in its program."""

    at: int
    length: int
    number: int


def with_joints(program: list[Instruction], spans: Shards, itemsize: int) -> list[Instruction]:
    """The program with its small accesses joined: one load for pieces of the source that lie beside each other, and one
    store for those of the result.

    A command costs its issue, and small ones wait for each other in the memory, whatever their size. So one command
    loads pieces within ``JOINT_BYTES``, before the first of them is used, and one stores them when the last is final.
    What lies between two pieces is loaded, too, and dropped. A message is still sent of its own piece.

    ``spans``: elements of source and result of which all have addresses one after the other, in one memory; 0: all, or
    no such tensor.

    A value that is stored as it was loaded is loaded alone: else it lies among those beside it in the source, and a
    store of several takes values that lie beside each other as in the result.
    """
    loads = [
        _Piece(each.load_at, each.length, number)
        for number, each in enumerate(program)
        if each.load_at != NOWHERE and (each.combines or each.store_at == NOWHERE)
    ]
    stores = [
        _Piece(each.store_at, each.length, number) for number, each in enumerate(program) if each.store_at != NOWHERE
    ]
    most = JOINT_BYTES // itemsize
    found = list(program)
    for pieces in _groups(loads, spans.source, most, lambda gap: True):
        for number, joint in _joints(pieces):
            found[number] = found[number]._replace(load_with=joint)
    for pieces in _groups(stores, spans.result, most, lambda gap: gap == 0):
        for number, joint in _joints(pieces):
            found[number] = found[number]._replace(store_with=joint)
    return found


def _groups(pieces: list[_Piece], span: int, most: int, may_pass: Callable[[int], bool]) -> Iterable[list[_Piece]]:
    """Two pieces or more, in order of their places, within ``most`` elements of one span.

    ``may_pass``: whether so many elements between two pieces may be accessed, too.
    """
    group: list[_Piece] = []
    for piece in sorted(pieces):
        if group:
            first, last = group[0], group[-1]
            gap, stop = piece.at - last.at - last.length, piece.at + piece.length
            is_near = stop - first.at <= most and (not span or first.at // span == (stop - 1) // span)
            if gap < 0 or not may_pass(gap) or not is_near:
                yield from (group,) if len(group) > 1 else ()
                group = []
        group.append(piece)
    yield from (group,) if len(group) > 1 else ()


def _joints(pieces: list[_Piece]) -> Iterable[tuple[int, Joint]]:
    """Of each piece, by its instruction's number."""
    at, numbers = pieces[0].at, sorted(piece.number for piece in pieces)
    length = pieces[-1].at + pieces[-1].length - at
    return [(number, Joint(at, length, number == numbers[0], number == numbers[-1])) for number in numbers]
