"""The work of a rank as few threads, each of which stands for workers that are alike: what they send and receive.

A thread's moves are those of :mod:`sipsim.chips.ahbm.collectives.programs.program`, with all tiles of a step in one
move.
"""

from operator import attrgetter
from typing import NamedTuple

from sipsim.chips.ahbm.collectives.launch.workers import Place
from sipsim.chips.ahbm.collectives.programs.ahead import with_sends_ahead
from sipsim.chips.ahbm.collectives.programs.joints import JOINT_BYTES
from sipsim.chips.ahbm.collectives.programs.program import Shards, passes_of
from sipsim.collectives.schedule.blocks import VECTOR
from sipsim.collectives.schedule.steps import Flow, Schedule
from sipsim.collectives.semantics.group import Task


class Move(NamedTuple):
    """``tiles`` messages of ``nbytes`` each, sent or received in a direction; ``key``: which move of its thread pairs
    with it at the other end. ``loads``: commands that read its worker's own values for it, each ``load_bytes``;
    ``stores``: those that write what comes as a result.
    """

    is_send: bool
    direction: str
    key: tuple[int, int]
    blocks: frozenset[tuple[int, int]]
    tiles: int
    nbytes: int
    combines: bool
    loads: int
    stores: int
    load_bytes: int
    store_bytes: int


class Thread(NamedTuple):
    """Workers at ``places``, which run the same ``flows``, each on ``width`` of ``whole`` of the data."""

    places: tuple[Place, ...]
    flows: tuple[int, ...]
    width: tuple[int, ...]
    whole: int

    @property
    def workers(self) -> int:
        """Their number."""
        return len(self.places)


def threads_of(schedule: Schedule, places: tuple[Place, ...], most_per_flow: int) -> list[Thread]:
    """The threads of every rank: at most so many for a flow; alike on all ranks."""
    n_flows, n_workers = len(schedule), len(places)
    weights = [flow.weight for flow in schedule]
    per_flow = max(n_workers // n_flows, 1)
    whole = per_flow * sum(weights)
    if n_workers < n_flows:
        shares = [tuple(range(worker, n_flows, n_workers)) for worker in range(n_workers)]
        return [
            Thread((places[worker],), own, tuple(weights[flow] for flow in own), whole)
            for worker, own in enumerate(shares)
        ]
    found = []
    for flow, weight in enumerate(weights):
        own = [places[position * n_flows + flow] for position in range(per_flow)]
        parts = min(most_per_flow, per_flow)
        for part in range(parts):
            some = own[part * per_flow // parts : (part + 1) * per_flow // parts]
            found.append(Thread(tuple(some), (flow,), (weight,), whole))
    return found


def passes_through(task: Task, thread: Thread) -> int:
    """How often a worker goes through its flows, each time with a part of the data."""
    return passes_of(task, max(thread.width), thread.whole, len(thread.flows))


def moves_of(
    task: Task, schedule: Schedule, thread: Thread, rank: int, tile: int, shards: Shards, ahead: int
) -> list[Move]:
    """The moves of a thread on a rank, sends before ``ahead`` messages that they do not need. ``tile``: elements."""
    passes = passes_through(task, thread)
    found: list[tuple[tuple[int, int], Move]] = []
    for flow, width in zip(thread.flows, thread.width, strict=True):
        share = task.n_elem * width / (thread.whole * passes * schedule[flow].pieces)
        moves = _moves_of_flow(task, schedule[flow], flow, rank, share, _tile(tile, share, shards))
        is_dense = task.collective.cut == VECTOR or width == thread.whole * passes
        found += _with_joints(moves, 0 if is_dense else task.n_elem * task.itemsize)
    if len(thread.flows) > 1:
        found.sort(key=lambda each: each[0])
    return with_sends_ahead(
        (move for _, move in found), ahead, attrgetter("is_send"), attrgetter("direction", "tiles"), _has_blocks_of
    )


def _with_joints(moves: list[tuple[tuple[int, int], Move]], unit_bytes: int) -> list[tuple[tuple[int, int], Move]]:
    """Moves whose loads are joined in the first of them that load, and whose stores are in the last.

    ``unit_bytes``: from piece to piece of a worker, 0 where they follow each other (:mod:`..schedule.joints`).
    """
    if not moves or moves[0][1].nbytes * 2 > JOINT_BYTES:
        return moves
    nbytes, found = moves[0][1].nbytes, list(moves)
    in_load = 1 + (JOINT_BYTES - nbytes) // (unit_bytes or nbytes)
    in_store = 1 if unit_bytes else in_load
    loads = -(-sum(move.loads for _, move in moves) // in_load)
    stores = -(-sum(move.stores for _, move in moves) // in_store)
    for number, (key, move) in enumerate(found):
        found[number] = key, move._replace(loads=min(loads, move.loads), load_bytes=nbytes * in_load)
        loads -= found[number][1].loads
    for number, (key, move) in reversed([*enumerate(found)]):
        found[number] = key, move._replace(stores=min(stores, move.stores), store_bytes=nbytes * in_store)
        stores -= found[number][1].stores
    return found


def _has_blocks_of(send: Move, other: Move) -> bool:
    return not other.blocks.isdisjoint(send.blocks)


def _tile(tile: int, share: float, shards: Shards) -> int:
    """Elements of a message: no more than a shard's."""
    return max(min(tile, *(shard for shard in shards if shard)) if any(shards) else tile, 1)


def _moves_of_flow(
    task: Task, flow: Flow, number: int, rank: int, share: float, tile: int
) -> list[tuple[tuple[int, int], Move]]:
    collective, pieces, size = task.collective, flow.pieces, task.size
    elements = max(round(share), 1)
    per_block = -(-elements // tile)
    nbytes = max(-(-elements // per_block), 1) * task.itemsize
    held: set[int] = set()
    found = []

    def move(is_send: bool, step_round: int, direction: str, blocks: tuple[int, ...], combine: int) -> Move:
        loads = (is_send or combine) and not held.issuperset(blocks)
        stores = not is_send and any(collective.needs(block // pieces, rank, size, task.root) for block in blocks)
        held.update(blocks)
        keys = frozenset((number, block) for block in blocks)
        tiles = per_block * len(blocks)
        ways = is_send, direction, (number, step_round)
        return Move(*ways, keys, tiles, nbytes, bool(combine), tiles * bool(loads), tiles * stores, nbytes, nbytes)

    for step in flow.steps_of(rank):
        if step.sends:
            found.append(((step.round, number), move(True, step.round, step.send, step.sends, 0)))
        if step.recvs:
            found.append(((step.round, number), move(False, step.round, step.recv, step.recvs, step.combine)))
    return found
