"""The estimate of a schedule's time: its messages over links and commands of workers, all ranks side by side. Pure.

Time goes by events of threads (:mod:`.threads`). A thread sends when its values are there and its PE_CPU is free. A
message takes the links on its way one after the other, each of which serves in the order of senders' times; what a
narrower edge inside a SIP, shared by all workers, needs longer counts as the link's. A receive waits for its message,
latches it, returns the credit, and combines. Left out are launch, page walks, and contention away from ports.

Of passes over the data the first two are carried out.
"""

from collections import Counter, defaultdict
from heapq import heappop, heappush
from itertools import count
from typing import Any, NamedTuple

from sipsim.chips.ahbm.collectives.algorithm import Algorithm
from sipsim.chips.ahbm.collectives.cost.commands import Ways
from sipsim.chips.ahbm.collectives.cost.threads import Move, threads_of
from sipsim.chips.ahbm.collectives.cost.work import Work
from sipsim.chips.ahbm.collectives.launch.launch import Prepared
from sipsim.chips.ahbm.collectives.launch.workers import Place
from sipsim.chips.ahbm.collectives.programs.program import Shards
from sipsim.collectives.group.traffic import Port
from sipsim.collectives.semantics.group import Task

Ps = int
Box = tuple[int, int, str]
"""A rank, a thread and a direction: where messages arrive."""


class Estimate(NamedTuple):
    """``time_ps``: without the launch. ``in_a_row``: messages of the longest chain, each of which waits for the one
    before it. ``link_ps``: for how long the busiest link carries bytes.
    """

    time_ps: Ps
    in_a_row: int
    link_ps: Ps


def estimate(algorithm: Algorithm, made: Prepared) -> Estimate:
    """The estimate of a task with an algorithm and its workers."""
    return Cost(algorithm, made).estimate()


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


class Cost:
    """The cost of a task with an algorithm and its workers: an estimate and bounds below it, each of which takes less
    work than the next one.
    """

    def __init__(self, algorithm: Algorithm, made: Prepared) -> None:
        self._algorithm = algorithm
        self._work = Work(algorithm, made)
        workers, holders = len(made.places), _holders(made.task, made.shards)
        self._sharers = max(workers // max(holders, 1), 1)

    def formula_ps(self) -> Ps:
        """The least time for which the busiest link carries bytes, by the algorithm's formula.

        The estimate's messages have whole elements, so that it may take 2 for 2.49 but no fewer than two thirds.
        """
        nbytes = int(self._algorithm.busiest_link(self._work.task) * 2 / 3) * self._work.task.itemsize
        return min((link.drain_ps(nbytes) for link in self._work.system.link_kinds), default=0)

    def own_ps(self) -> Ps:
        """The time for which the PE_CPU of one worker is busy in a pass in which it never waits, on two ranks that may
        differ.
        """
        size = self._work.task.size
        thread, *_ = threads_of(self._work.schedule, self._work.made.places, 1)
        return max(
            sum(self._busy_ps(rank, thread.places[0], move) for move in self._work.moves_of(thread, rank))
            for rank in {0, size // 2}
        )

    def _busy_ps(self, rank: int, place: Place, move: Move) -> Ps:
        issue_ps = self._work.commands.issue_ps
        if move.is_send:
            return issue_ps
        own_ps = self._own_ps(rank, place, move)
        return issue_ps + own_ps + (move.tiles - 1) * (own_ps + issue_ps)

    def links_ps(self) -> Ps:
        """The time for which the busiest link carries bytes."""
        return self._work.passes * max(self._work.links.busy.values(), default=0)

    def estimate(self) -> Estimate:
        """The estimate."""
        if self._work.task.size == 1:
            return Estimate(0, 0, 0)
        found = self._carried_out(1)
        if self._work.passes > 1:
            twice, more = self._carried_out(2), self._work.passes - 1
            time_ps = found.time_ps + more * (twice.time_ps - found.time_ps)
            found = Estimate(time_ps, found.in_a_row, self._work.passes * found.link_ps)
        return found

    def _carried_out(self, passes: int) -> Estimate:
        """The estimate of ``passes`` passes over the data: all moves, one after the other."""
        states = {key: _State(moves * passes) for key, moves in self._work.moves.items()}
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
        """The time at which the last store of a thread has ended."""
        stored = state.stored_bytes
        return max(state.free_ps, state.loaded_ps) + (self._work.commands.store_ps(stored) if stored else 0)

    def _send(self, rank: int, thread: int, state: _State, move: Move) -> "tuple[Ps, _Message]":
        commands, workers, tiles = self._work.commands, self._work.threads[thread].workers, move.tiles
        issue_ps = commands.issue_ps * (2 if move.loads else 1)
        others_ps = commands.issue_ps * (tiles + move.loads) - issue_ps
        last = state.last
        follows = last is not None and not last.is_send and tiles > 1 and not last.blocks.isdisjoint(move.blocks)
        first_ps = (min(state.first_ps, state.free_ps) if follows else state.free_ps) + issue_ps
        free_ps = state.free_ps + issue_ps + max(others_ps - (state.idle_ps if follows else 0), 0)
        if move.loads:
            first_ps, free_ps = self._load(state, move, first_ps, free_ps)
        state.free_ps, state.idle_ps = free_ps, 0
        ways = self._work.ways((rank, move.direction))
        head_ps, drain_ps, occupied = self._work.crossing(thread, (rank, move.direction), move.nbytes)
        between_ps = max(max(occupied) * workers, drain_ps, (head_ps + drain_ps) // self._work.rings.n_slots)
        to, direction = self._work.wiring[rank, move.direction]
        to %= len(self._work.ranks)
        message = _Message((to, thread, direction), ways, occupied, workers * tiles, head_ps // len(ways))
        # What comes last has not waited for less than what came first.
        message.behind_ps = head_ps - head_ps // len(ways) * len(ways) + max(drain_ps, max(occupied) * workers)
        message.spread_ps = max((tiles - 1) * between_ps, free_ps - first_ps)
        message.depth = state.depth + 1
        return first_ps, message

    def _receive(self, rank: int, thread: int, state: _State, move: Move, message: tuple[Ps, Ps, int]) -> None:
        commands, tiles = self._work.commands, move.tiles
        first_arrives_ps, last_arrives_ps, depth = message
        state.depth = max(state.depth, depth)
        own_ps = self._own_ps(rank, self._work.threads[thread].places[0], move)
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

    def _own_ps(self, rank: int, place: Place, move: Move) -> Ps:
        """The time that a message takes of its receiver's PE_CPU, from when the PE_CPU sees it."""
        commands = self._work.commands
        own_ps = commands.latch_ps(move.nbytes)
        own_ps += commands.credit_ps(place, self._work.standing_for(self._work.wiring[rank, move.direction]))
        if move.combines:
            own_ps += commands.issue_ps + commands.math_ps(move.nbytes)
        return own_ps + commands.issue_ps * (move.stores + move.loads) // move.tiles

    def _load(self, state: _State, move: Move, first_ps: Ps, free_ps: Ps) -> tuple[Ps, Ps]:
        """Loads are issued ahead, so that only the first one's latency counts, and the time of all bytes."""
        latency_ps, bytes_ps = self._work.commands.load_ps(move.load_bytes)
        bytes_ps *= self._sharers
        begins_ps = state.loaded_ps or latency_ps + self._work.commands.issue_ps
        state.loaded_ps = begins_ps + bytes_ps * move.loads
        return max(first_ps, begins_ps + bytes_ps), max(free_ps, state.loaded_ps)


def _holders(task: Task, shards: Shards) -> int:
    """How many PEs of a SIP hold a tensor."""
    whole = task.collective.elements(task.n_elem, task.size)
    return max((numel // shard for numel, shard in zip(whole, shards, strict=True) if shard), default=1)
