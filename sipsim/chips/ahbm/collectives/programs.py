"""Programs of a rank's workers: a schedule translated to instructions for tiles, by the same rules on every rank.

A *worker* is a PE that runs the kernel on its part of the elements. Parts are in the order of elements, with the parts
of all flows interleaved, so that a worker's part is in nearby memory if the tensor is distributed evenly.
"""

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator
from itertools import accumulate, pairwise, zip_longest
from operator import attrgetter
from typing import NamedTuple, TypeVar

from sipsim.collectives.schedule import REPLACE, Ahead, Extent, Flow, Schedule, Share, Step, block_of, number_of, units
from sipsim.collectives.semantics import Task

T = TypeVar("T")


NOWHERE = -1
Tile = tuple[int, int]
"""Piece of a block that is sent as one message: (start, stop) of its elements."""
Message = tuple[int, int, int]
"""(block, start, stop): a tile of a block."""
Position = tuple[int, int, int]
"""(pass, round, tile of the round) of an instruction in its flow."""
Key = tuple[int, ...]
"""Key of a value that a worker holds: (flow if there are several, block, start, stop)."""
PART_DIVISOR = 7
"""A worker's part of the data may fill 1/7 of its kernel's TCM room: the worker may hold several copies of a part per
flow, and the tiles that it loads and receives."""


class Shards(NamedTuple):
    """Elements per PE's shard of source and of result; 0 if the rank lacks the tensor. No access crosses shards."""

    source: int
    result: int


class CoalescedAccess(NamedTuple):
    """One command that accesses several tiles: ``length`` elements from element ``at`` on.

    A load is issued with the first of the tiles' instructions, a store with the last.
    """

    at: int
    length: int
    is_first: bool
    is_last: bool


class Instruction(NamedTuple):
    """A worker's operation on one tile of ``length`` elements.

    The value of the tile is loaded from ``load_at`` of the source, or is held since an earlier instruction. A message
    from direction ``recv`` replaces the value or is combined with it (``combines``:
    :mod:`sipsim.collectives.schedule`). Then the value is sent in direction ``send``, stored at ``store_at`` of the
    result, and held for a later instruction if ``keeps``. ``load_with``, ``store_with``: coalesced accesses.
    """

    key: Key
    length: int
    load_at: int = NOWHERE
    recv: str = ""
    combines: int = REPLACE
    send: str = ""
    store_at: int = NOWHERE
    keeps: bool = False
    load_with: CoalescedAccess | None = None
    store_with: CoalescedAccess | None = None


class Program(NamedTuple):
    """Program of a worker: its instructions, and how far ahead its kernel issues loads and receives."""

    instructions: list[Instruction]
    ahead: Ahead = Ahead()


def programs(
    task: Task, schedule: Schedule, rank: int, n_workers: int, shards: Shards, tile: int, sends: int = 0
) -> list[list[Instruction]]:
    """Return the instructions of each worker of a rank, in the order of workers (:func:`worker_program`)."""
    return [worker_program(task, schedule, rank, each, n_workers, shards, tile, sends) for each in range(n_workers)]


def worker_program(
    task: Task, schedule: Schedule, rank: int, worker: int, n_workers: int, shards: Shards, tile: int, sends: int = 0
) -> list[Instruction]:
    """Return the instructions of one worker of a rank. ``tile``: maximum elements per message.

    ``sends``: number of independent receives of a direction that a send may overtake; less than the slots of a ring.
    """
    shares = work_of(task, schedule, worker, n_workers)
    merged = _merged([[*_program(task, rank, share, shards, tile)] for share in shares])
    return hoisted_sends(merged, sends, _sends, _received, _is_of_tile)


_sends = attrgetter("send")


def _received(instruction: Instruction) -> tuple[str, int]:
    return instruction.recv, 1 if instruction.recv else 0


def _is_of_tile(send: Instruction, other: Instruction) -> bool:
    return send.key == other.key


def work_of(task: Task, schedule: Schedule, worker: int, n_workers: int) -> list[tuple[Flow, list[Share]]]:
    """Return the flows of a worker, each with the worker's parts, one part per pass.

    Each worker has one flow if there are at least as many workers as flows; otherwise a worker has several flows.
    """
    *starts, whole = accumulate((flow.weight for flow in schedule), initial=0)
    per_flow = max(n_workers // len(schedule), 1)
    numbers = range(worker, per_flow * len(schedule), n_workers)
    shares = []
    for number in numbers:
        position, index = divmod(number, len(schedule))
        first = position * whole + starts[index]
        part = Share(first, first + schedule[index].weight, per_flow * whole)
        shares.append((schedule[index], _passes(task, part, len(numbers))))
    return shares


def passes_of(task: Task, width: int, whole: int, flows: int) -> int:
    """Return the number of passes that a worker of ``flows`` flows needs for the share ``width / whole`` of all data.
    The TCM must hold the worker's part of each pass.
    """
    nbytes = units(task.collective.cut, task.size) * task.n_elem * task.itemsize * width // whole
    return max(-(-nbytes * PART_DIVISOR * flows // task.room_bytes), 1)


def _passes(task: Task, part: Share, flows: int) -> list[Share]:
    """Divide a part into one piece per pass."""
    width = part.stop - part.start
    count = passes_of(task, width, part.whole, flows)
    starts = range(part.start * count, part.stop * count, width)
    return [Share(start, start + width, part.whole * count) for start in starts]


def tiles_of(block: Extent, shards: Shards, tile: int) -> list[Tile]:
    """Return a block's tiles: each has at most ``tile`` elements and does not cross the end of a shard."""
    cuts = {*range(0, block.length, tile)}
    for offset, shard in ((block.source, shards.source), (block.result, shards.result)):
        if shard:
            cuts.update(range(-offset % shard, block.length, shard))
    starts = sorted(cuts)
    return [*pairwise([*starts, block.length])]


def _messages(blocks: tuple[int, ...], tiling: Callable[[int], list[Tile]]) -> list[Message]:
    """Return the messages for blocks: the tiles of each block, in order."""
    return [(block, start, stop) for block in blocks for start, stop in tiling(number_of(block))]


def _program(
    task: Task, rank: int, share: tuple[Flow, list[Share]], shards: Shards, tile: int
) -> Iterator[tuple[Position, Instruction]]:
    flow, parts = share
    steps = flow.steps_of(rank)
    for number, part in enumerate(parts):
        translator = _Translator(task, rank, flow.pieces, part, shards, tile)
        for (step_round, index), instruction in translator.instructions(steps):
            yield (number, step_round, index), instruction


class _Move(NamedTuple):
    """A tile that is sent or received in a round; ``place``: index of the tile in its step."""

    key: Message
    round: int
    place: int
    direction: str
    combines: int
    is_send: bool


class _Translator:
    """Translator of one rank's steps on one part to instructions."""

    def __init__(self, task: Task, rank: int, pieces: int, part: Share, shards: Shards, tile: int) -> None:
        self._task = task
        self._rank = rank
        self._pieces = pieces
        self._part = part
        self._shards = shards
        self._tile = tile
        self._blocks: dict[int, tuple[Extent, list[Tile]]] = {}
        self._stored: set[Message] = set()

    def instructions(self, steps: list[Step]) -> Iterator[tuple[tuple[int, int], Instruction]]:
        """Yield instructions by (round, tile): sends and receives of the steps in turn, then local copies."""
        moves = [move for step in steps for move in self._moves(step)]
        held: set[Message] = set()
        for move, (keeps, stores) in zip(moves, self._uses(moves), strict=True):
            key, sends = move.key, move.is_send
            load_at = self._at(key, "source") if (sends or move.combines) and key not in held else NOWHERE
            if load_at != NOWHERE and key[0] >= 0 and key not in self._stored and self._is_to_copy(key):
                # A rank's own part of the result, such as in an all-gather, is stored when it is sent.
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

    def _uses(self, moves: list[_Move]) -> list[tuple[bool, bool]]:
        """Return for each move whether a later move uses the tile's value, and whether the value is a final result."""
        later: dict[Message, _Move] = {}
        uses = []
        for move in reversed(moves):
            after = later.get(move.key)
            is_final = not move.is_send and move.key not in self._stored
            if is_final:
                self._stored.add(move.key)
            keeps = after is not None and bool(after.is_send or after.combines)
            uses.append((keeps, is_final and self._needs(move.key[0])))
            later[move.key] = move
        return uses[::-1]

    def _moves(self, step: Step) -> Iterator[_Move]:
        out, into = (_messages(blocks, self._tiling) for blocks in (step.sends, step.recvs))
        for place, (sent, received) in enumerate(zip_longest(out, into)):
            if sent is not None:
                yield _Move(sent, step.round, place, step.send, REPLACE, True)
            if received is not None:
                yield _Move(received, step.round, place, step.recv, step.combine, False)

    def _copies(self) -> Iterator[Instruction]:
        """Yield copies of the tiles that this rank holds and needs, and neither receives nor sends."""
        for number in range(units(self._task.collective.cut, self._task.size) * self._pieces):
            for key in _messages((number,), self._tiling) if self._is_own(number) else ():
                if key not in self._stored and self._is_to_copy(key):
                    source, result = self._at(key, "source"), self._at(key, "result")
                    yield Instruction(key, key[2] - key[1], source, store_at=result)

    def _is_own(self, block: int) -> bool:
        """Return whether the rank holds a block before and needs it afterwards."""
        task = self._task
        return self._needs(block) and task.collective.holds(block // self._pieces, self._rank, task.size, task.root)

    def _is_to_copy(self, key: Message) -> bool:
        is_in_result = self._task.in_place and self._at(key, "source") == self._at(key, "result")
        return self._is_own(key[0]) and not is_in_result

    def _needs(self, block: int) -> bool:
        task = self._task
        return task.collective.needs(block // self._pieces, self._rank, task.size, task.root)

    def _at(self, key: Message, tensor: str) -> int:
        block, _ = self._block(number_of(key[0]))
        return (block.source if tensor == "source" else block.result) + key[1]

    def _tiling(self, number: int) -> list[Tile]:
        return self._block(number)[1]

    def _block(self, number: int) -> tuple[Extent, list[Tile]]:
        if number not in self._blocks:
            task, cut = self._task, self._task.collective
            block = block_of(cut.cut, cut.gathers, task.n_elem, task.size, self._part, self._pieces, number)
            self._blocks[number] = block, tiles_of(block, self._shards, self._tile)
        return self._blocks[number]


def _merged(programs: list[list[tuple[Position, Instruction]]]) -> list[Instruction]:
    """Merge the programs of one worker's flows by position, which is equal on both sides of a message: no deadlock."""
    if len(programs) == 1:
        return [instruction for _, instruction in programs[0]]
    numbered = [
        (position, flow, index, instruction._replace(key=(flow, *instruction.key)))
        for flow, program in enumerate(programs)
        for index, (position, instruction) in enumerate(program)
    ]
    return [instruction for *_, instruction in sorted(numbered, key=lambda each: each[:3])]


def hoisted_sends(
    steps: Iterable[T],
    ahead: int,
    sends: Callable[[T], object],
    received: Callable[[T], tuple[str, int]],
    needs: Callable[[T, T], bool],
) -> list[T]:
    """Hoist each send of a worker over up to ``ahead`` independent messages per direction that are received before it,
    so that links stay busy.

    ``sends(step)`` returns whether a step sends, ``received(step)`` direction and number of messages of a step that
    does not send, and ``needs(send, step)`` whether a send depends on another step.

    The order of sends and the order of receives do not change. With rings of more than ``ahead`` slots this is free of
    deadlock. Proof: take the waiting rank whose step has the least position (:mod:`sipsim.collectives.schedule`). If
    the step is a send, the ring is full of messages of lesser positions. The receiver waits at no lesser position: a
    receiver that waits to receive has received all these messages; a receiver that waits to send, all but ``ahead``. If
    the step is a receive, the sender waits at no lesser position, and its send may only have been moved to the front.
    """
    hoisted: list[T] = []
    for step in steps:
        position, passed = len(hoisted), Counter[str]()
        if ahead and sends(step):
            while position and not sends(hoisted[position - 1]) and not needs(step, hoisted[position - 1]):
                direction, messages = received(hoisted[position - 1])
                passed[direction] += messages
                if passed[direction] > ahead:
                    break
                position -= 1
        hoisted.insert(position, step)
    return hoisted


def farthest_first(program: list[Instruction], n_slots: int, links_to: Callable[[str], int]) -> list[Instruction]:
    """Sort the first sends of a program by distance, the farthest first. ``links_to(direction)``: links of the route.

    First sends are sends before the first receive that find a free slot. They wait for no rank, so any order works.
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
    # A value that is sent in several directions is loaded by its first instruction and held until the last.
    moved = [of_key[instruction.key].popleft()._replace(send=instruction.send) for instruction in ordered]
    return [*moved, *program[len(first) :]]


COALESCED_BYTES = 1024
"""Maximum bytes of a coalesced access: it costs a PE about 8 ns more than one tile, each further command 15 ns."""


class _Access(NamedTuple):
    """The access of instruction ``number``: ``length`` elements at ``at``."""

    at: int
    length: int
    number: int


def coalesced(program: list[Instruction], spans: Shards, itemsize: int) -> list[Instruction]:
    """Coalesce small accesses of a program: one load for neighbouring tiles of the source, one store for neighbouring
    tiles of the result.

    Every command costs its issue, and small commands queue in the memory. So one command loads all tiles within
    ``COALESCED_BYTES`` before the first is used, and one command stores tiles when the last is final. Elements in gaps
    between loaded tiles are loaded and dropped. Messages stay single tiles.

    ``spans``: contiguous elements of source and of result in one memory; 0 if all are, or the rank lacks the tensor.

    A value that is stored unchanged after its load is loaded separately: a coalesced store takes values that are
    neighbours in the result, but a coalesced load yields neighbours in the source.
    """
    loads = [
        _Access(each.load_at, each.length, number)
        for number, each in enumerate(program)
        if each.load_at != NOWHERE and (each.combines or each.store_at == NOWHERE)
    ]
    stores = [
        _Access(each.store_at, each.length, number) for number, each in enumerate(program) if each.store_at != NOWHERE
    ]
    limit = COALESCED_BYTES // itemsize
    instructions = list(program)
    for pieces in _groups(loads, spans.source, limit, lambda gap: True):
        for number, joint in _coalesced_accesses(pieces):
            instructions[number] = instructions[number]._replace(load_with=joint)
    for pieces in _groups(stores, spans.result, limit, lambda gap: gap == 0):
        for number, joint in _coalesced_accesses(pieces):
            instructions[number] = instructions[number]._replace(store_with=joint)
    return instructions


def _groups(pieces: list[_Access], span: int, limit: int, may_pass: Callable[[int], bool]) -> Iterable[list[_Access]]:
    """Yield groups of two or more accesses within ``limit`` elements of one span, sorted by address.

    ``may_pass(gap)`` returns whether a group may also access ``gap`` unused elements between two accesses.
    """
    group: list[_Access] = []
    for piece in sorted(pieces):
        if group:
            first, last = group[0], group[-1]
            gap, stop = piece.at - last.at - last.length, piece.at + piece.length
            is_near = stop - first.at <= limit and (not span or first.at // span == (stop - 1) // span)
            if gap < 0 or not may_pass(gap) or not is_near:
                yield from (group,) if len(group) > 1 else ()
                group = []
        group.append(piece)
    yield from (group,) if len(group) > 1 else ()


def _coalesced_accesses(pieces: list[_Access]) -> Iterable[tuple[int, CoalescedAccess]]:
    """Return (instruction number, coalesced access) for each access of the group ``pieces``."""
    at, numbers = pieces[0].at, sorted(piece.number for piece in pieces)
    length = pieces[-1].at + pieces[-1].length - at
    return [(number, CoalescedAccess(at, length, number == numbers[0], number == numbers[-1])) for number in numbers]
