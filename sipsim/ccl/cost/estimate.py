"""The estimate of a schedule's time: its messages over links and commands of workers, all ranks side by side. Pure.

Time goes by events of threads (:mod:`.threads`). A thread sends when its values are there and its PE_CPU is free. A
message takes the links on its way one after the other, each of which serves in the order of senders' times; what a
narrower edge inside a SIP, shared by all workers, needs longer counts as the link's. A receive waits for its message,
latches it, returns the credit, and combines. Left out are launch, page walks, and contention away from ports.

Limits of size: a rank has at most ``MOST_MOVES`` moves in all its threads where fewer threads can stand for them, and
of passes over the data the first two are carried out.
"""

from collections import Counter, defaultdict
from heapq import heappop, heappush
from itertools import count
from typing import Any, NamedTuple

from sipsim.ccl.algorithm import Algorithm
from sipsim.ccl.collectives.group import Task
from sipsim.ccl.cost.commands import Commands, Ways
from sipsim.ccl.cost.threads import Move, Thread, moves_of, passes_through, threads_of
from sipsim.ccl.groups.install import ring_size
from sipsim.ccl.groups.launch import SENDS_AHEAD, Prepared
from sipsim.ccl.schedule.program import Shards
from sipsim.ccl.schedule.steps import Schedule, Wiring
from sipsim.ccl.schedule.traffic import Port, route
from sipsim.ccl.settings import effective_ipcq
from sipsim.system.system import System
from sipsim.units import BYTES_PER_KIB

Ps = int
Box = tuple[int, int, str]
"""A rank, a thread and a direction: where messages arrive."""
MOST_MOVES = 6000
MOST_THREADS = 4
"""For a flow. One waits for a message while others keep a link busy."""


class Estimate(NamedTuple):
    """``time_ps``: without the launch. ``in_a_row``: messages of the longest chain, each of which waits for the one
    before it. ``link_ps``: for how long the busiest link carries bytes.
    """

    time_ps: Ps
    in_a_row: int
    link_ps: Ps


def estimate(algorithm: Algorithm, made: Prepared, limit_ps: Ps | None = None) -> Estimate | None:
    """Of a task with its workers. None where one link alone is busy for ``limit_ps`` or longer."""
    task = made.task
    if task.size == 1:
        return Estimate(0, 0, 0)
    assert algorithm.schedule is not None
    assert algorithm.wiring is not None
    schedule: Schedule = algorithm.schedule(task)
    wiring: Wiring = algorithm.wiring(task.group)
    system = task.group.system
    assert isinstance(system, System)
    knobs = effective_ipcq(system.resolved, algorithm.name)
    rings = ring_size(wiring, knobs, system.resolved.ccl.defaults.group_KiB * BYTES_PER_KIB)
    commands = Commands(system, knobs)
    tile = max(rings.slot_size // task.itemsize, 1)
    n_steps = sum(len(flow.steps_of(rank)) for flow in schedule for rank in range(task.size))
    most = max(min(MOST_THREADS, MOST_MOVES // max(2 * n_steps, 1)), 1)
    threads = threads_of(schedule, made.places, most)
    run = _Run(task, schedule, wiring, threads, commands, rings.n_slots, made)
    ahead = min(SENDS_AHEAD, rings.n_slots - 1)
    for thread_index, thread in enumerate(threads):
        for rank in range(task.size):
            run.add(rank, thread_index, moves_of(task, schedule, thread, rank, tile, made.shards, ahead))
    passes = max(passes_through(task, thread) for thread in threads)
    if limit_ps is not None and passes * run.busiest_ps() >= limit_ps:
        return None
    found = run.estimate(1)
    if passes > 1:
        twice = run.estimate(2)
        more = passes - 1
        found = Estimate(found.time_ps + more * (twice.time_ps - found.time_ps), found.in_a_row, passes * found.link_ps)
    return found


class _State:
    """A thread on a rank: ``free_ps``: when its PE_CPU has done its last move; ``first_ps``: the first tile of it.

    ``idle_ps``: of the last receive, which sends between its tiles fill. ``depth``: messages in a row before now.
    """

    __slots__ = ("at", "depth", "first_ps", "free_ps", "idle_ps", "last", "loaded_ps", "moves", "stored_bytes")

    def __init__(self, moves: list[Move]) -> None:
        self.moves = moves
        self.at = 0
        self.free_ps = self.first_ps = self.idle_ps = self.loaded_ps = 0
        self.depth = 0
        self.last: Move | None = None
        self.stored_bytes = 0


class _Message:
    """The messages of a move on their ways: at link ``hop``. ``behind_ps``: the last link's head to the first's end."""

    __slots__ = ("behind_ps", "box", "count", "depth", "hop", "hop_ps", "occupied", "spread_ps", "ways")

    def __init__(self, box: Box, ways: Ways, occupied: list[Ps], count: int, hop_ps: Ps) -> None:
        self.box = box
        self.ways = ways
        self.occupied = occupied
        self.count = count
        self.hop_ps = hop_ps
        self.hop = self.depth = 0
        self.behind_ps = self.spread_ps = 0


class _Run:
    """All threads of all ranks of a task."""

    def __init__(
        self,
        task: Task,
        schedule: Schedule,
        wiring: Wiring,
        threads: list[Thread],
        commands: Commands,
        n_slots: int,
        made: Prepared,
    ) -> None:
        self._task = task
        self._wiring = wiring
        self._threads = threads
        self._commands = commands
        self._n_slots = n_slots
        self._moves: dict[tuple[int, int], list[Move]] = {}
        self._ways: dict[tuple[int, str], Ways] = {}
        self._users: defaultdict[Port, Counter[int]] = defaultdict(Counter)
        self._factors: dict[Port, float] = {}
        workers, holders = len(made.places), _holders(task, made.shards)
        self._sharers = max(workers // max(holders, 1), 1)

    def add(self, rank: int, thread: int, moves: list[Move]) -> None:
        """A thread of a rank."""
        self._moves[rank, thread] = moves
        for move in moves:
            if move.is_send and (rank, move.direction) not in self._ways:
                self._ways[rank, move.direction] = tuple(
                    route(self._task.group, rank, self._wiring[rank, move.direction][0], move.direction)
                )
            if move.is_send:
                for port in self._ways[rank, move.direction]:
                    self._users[port][thread] += move.tiles * move.nbytes * self._threads[thread].workers

    def busiest_ps(self) -> Ps:
        """For how long the busiest link carries bytes in one pass."""
        busy: Counter[Port] = Counter()
        for (rank, thread), moves in self._moves.items():
            workers = self._threads[thread].workers
            for move in moves:
                for way in self._ways[rank, move.direction] if move.is_send else ():
                    busy[way] += self._commands.link_ps(way, move.nbytes) * workers * move.tiles
        return max(busy.values(), default=0)

    def estimate(self, passes: int) -> Estimate:
        """Carry out all moves, so often."""
        states = {key: _State(moves * passes) for key, moves in self._moves.items()}
        numbers = count()
        ready: list[tuple[Ps, int, Any]] = [(0, next(numbers), key) for key in states]
        free: defaultdict[Port, Ps] = defaultdict(int)
        busy: Counter[Port] = Counter()
        mail: defaultdict[Box, list[tuple[Ps, Ps, int]]] = defaultdict(list)
        taken: Counter[Box] = Counter()
        waiting: dict[Box, tuple[int, int]] = {}
        end_ps = depth = 0
        while ready:
            now_ps, _, key = heappop(ready)
            if isinstance(key, _Message):
                way = key.ways[key.hop]
                start_ps = max(free[way], now_ps)
                free[way] = start_ps + key.occupied[key.hop] * key.count
                busy[way] += key.occupied[key.hop] * key.count
                key.hop += 1
                at_ps = start_ps + key.hop_ps
                if key.hop < len(key.ways):
                    heappush(ready, (at_ps, next(numbers), key))
                    continue
                at_ps += key.behind_ps
                mail[key.box].append((at_ps, at_ps + key.spread_ps, key.depth))
                if key.box in waiting:
                    other = waiting.pop(key.box)
                    heappush(ready, (states[other].free_ps, next(numbers), other))
                continue
            state = states[key]
            if state.at == len(state.moves):
                end_ps, depth = max(end_ps, self._end_ps(state)), max(depth, state.depth)
                continue
            move = state.moves[state.at]
            rank, thread = key
            if move.is_send:
                first_ps, message = self._send(rank, thread, state, move)
                heappush(ready, (first_ps, next(numbers), message))
            else:
                box = rank, thread, move.direction
                if taken[box] == len(mail[box]):
                    waiting[box] = key
                    continue
                self._receive(rank, thread, state, move, mail[box][taken[box]])
                taken[box] += 1
            state.at += 1
            state.last = move
            heappush(ready, (state.free_ps, next(numbers), key))
        return Estimate(end_ps, depth, max(busy.values(), default=0))

    def _end_ps(self, state: _State) -> Ps:
        """When the last store has ended."""
        stored = state.stored_bytes
        return max(state.free_ps, state.loaded_ps) + (self._commands.store_ps(stored) if stored else 0)

    def _send(self, rank: int, thread: int, state: _State, move: Move) -> "tuple[Ps, _Message]":
        commands, workers, tiles = self._commands, self._threads[thread].workers, move.tiles
        issue_ps = commands.issue_ps * (2 if move.loads else 1)
        others_ps = commands.issue_ps * (tiles + move.loads) - issue_ps
        last = state.last
        follows = last is not None and not last.is_send and tiles > 1 and not last.blocks.isdisjoint(move.blocks)
        first_ps = (min(state.first_ps, state.free_ps) if follows else state.free_ps) + issue_ps
        free_ps = state.free_ps + issue_ps + max(others_ps - (state.idle_ps if follows else 0), 0)
        if move.loads:
            first_ps, free_ps = self._load(state, move, first_ps, free_ps)
        state.free_ps, state.idle_ps = free_ps, 0
        ways = self._ways[rank, move.direction]
        places = self._threads[thread].places
        head_ps = max(commands.head_ps(place, ways) for place in places)
        drain_ps = commands.drain_ps(places[0], ways, move.nbytes)
        occupied = [round(commands.link_ps(way, move.nbytes) * self._factor(way, move.nbytes)) for way in ways]
        between_ps = max(max(occupied) * workers, drain_ps, (head_ps + drain_ps) // self._n_slots)
        to, direction = self._wiring[rank, move.direction]
        message = _Message((to, thread, direction), ways, occupied, workers * tiles, head_ps // len(ways))
        # What comes last has not waited for less than what came first.
        message.behind_ps = head_ps - head_ps // len(ways) * len(ways) + max(drain_ps, max(occupied) * workers)
        message.spread_ps = max((tiles - 1) * between_ps, free_ps - first_ps)
        message.depth = state.depth + 1
        return first_ps, message

    def _receive(self, rank: int, thread: int, state: _State, move: Move, message: tuple[Ps, Ps, int]) -> None:
        commands, tiles = self._commands, move.tiles
        first_arrives_ps, last_arrives_ps, depth = message
        state.depth = max(state.depth, depth)
        back = self._wiring[rank, move.direction]
        ways = self._ways.get(back) or tuple(route(self._task.group, back[0], rank, back[1]))
        own_ps = commands.latch_ps(move.nbytes) + commands.credit_ps(self._threads[thread].places[0], ways)
        if move.combines:
            own_ps += commands.issue_ps + commands.math_ps(move.nbytes)
        own_ps += commands.issue_ps * (move.stores + move.loads) // tiles
        start_ps = state.free_ps + commands.issue_ps
        seen_ps = start_ps if first_arrives_ps <= start_ps else first_arrives_ps + commands.wake_ps
        first_ps = seen_ps + own_ps
        if move.combines and move.loads:
            first_ps, _ = self._load(state, move, first_ps, first_ps)
        busy_ps = first_ps + (tiles - 1) * (own_ps + commands.issue_ps)
        last_ps = max(busy_ps, last_arrives_ps + commands.wake_ps + own_ps if tiles > 1 else 0)
        state.first_ps, state.free_ps, state.idle_ps = first_ps, max(last_ps, state.loaded_ps), last_ps - busy_ps
        if move.stores:
            state.stored_bytes = move.store_bytes

    def _load(self, state: _State, move: Move, first_ps: Ps, free_ps: Ps) -> tuple[Ps, Ps]:
        """Loads are issued ahead, so that only the first one's latency counts, and the time of all bytes."""
        latency_ps, bytes_ps = self._commands.load_ps(move.load_bytes)
        bytes_ps *= self._sharers
        begins_ps = state.loaded_ps or latency_ps + self._commands.issue_ps
        state.loaded_ps = begins_ps + bytes_ps * move.loads
        return max(first_ps, begins_ps + bytes_ps), max(free_ps, state.loaded_ps)

    def _factor(self, way: Port, nbytes: int) -> float:
        """How much longer than a link the narrowest edge between it and all that use it needs for their bytes."""
        if way not in self._factors:
            link_ps = self._commands.link_ps(way, nbytes)
            # Edges are looked up by their ids: one takes ten times as long to hash.
            loads: defaultdict[int, int] = defaultdict(int)
            takes_ps: dict[int, Ps] = {}
            far = self._task.group.system.far_ends[way]
            total = 0
            for thread, nbytes_of in self._users[way].items():
                places = self._threads[thread].places
                total += nbytes_of
                for place in places:
                    out, _ = self._commands.inside(place, way[1])
                    _, into = self._commands.inside(place, far.port)
                    for edge in (*out, *into):
                        if id(edge) not in takes_ps:
                            takes_ps[id(edge)] = self._commands.edge_ps(edge, nbytes)
                        loads[id(edge)] += nbytes_of * takes_ps[id(edge)] // len(places)
            most = max(loads.values(), default=0)
            self._factors[way] = max(most / (total * link_ps), 1.0) if total and link_ps else 1.0
        return self._factors[way]


def _holders(task: Task, shards: Shards) -> int:
    """How many PEs of a SIP hold a tensor."""
    whole = task.collective.elements(task.n_elem, task.size)
    return max((numel // shard for numel, shard in zip(whole, shards, strict=True) if shard), default=1)
