"""Estimate of a collective's time with an algorithm, from its messages over links and its workers' commands.

The estimate is a coarse event-driven simulation of all ranks, without side effects. A :class:`Thread` represents equal
workers of a rank. Its moves are the instructions of :mod:`~sipsim.chips.ahbm.collectives.programs`, with all tiles of a
step in one move. A thread sends when its values are available and its PE_CPU is free. A message occupies the links of
its route one after the other; a link serves messages in the order of their arrival. If an edge inside the SIP, shared
by all workers, is slower than the link, the link is priced at the rate of this edge. A receive waits for its message,
latches the message, returns the credit, and combines.

The times of single commands are those of :mod:`sipsim.chips.ahbm.costs.prices`, computed for representative places.

Not modelled: launch, page walks, and contention away from ports. Only the first two passes over the data are simulated;
each further pass is assumed to take as long as the second.
"""

from collections import Counter, defaultdict
from functools import cache, cached_property, partial
from heapq import heappop, heappush
from itertools import count
from operator import attrgetter
from typing import Any, NamedTuple

from sipsim.chips.ahbm.address import PePlace, PhysAddr
from sipsim.chips.ahbm.collectives.algorithm import Algorithm
from sipsim.chips.ahbm.collectives.launch import Place, PlannedCall
from sipsim.chips.ahbm.collectives.programs import COALESCED_BYTES, Shards, hoisted_sends, passes_of
from sipsim.chips.ahbm.collectives.queue_pairs import ring_memory, ring_pa
from sipsim.chips.ahbm.collectives.settings import effective_ipcq
from sipsim.chips.ahbm.collectives.wirings import RingSize, ring_size
from sipsim.chips.ahbm.costs.prices import Price, Prices, bytes_ps, sum_ps
from sipsim.chips.ahbm.ipcq.backpressure import backpressure_of
from sipsim.chips.ahbm.ipcq.credits import FAST_PATH, PIGGYBACK, credit_mode_of
from sipsim.chips.ahbm.ipcq.messages import COPY, IN_PLACE, WireFormat
from sipsim.chips.ahbm.pe.math import MathTimes
from sipsim.chips.ahbm.system import AhbmSystem
from sipsim.collectives.group import Port, route
from sipsim.collectives.schedule import VECTOR, End, Flow, Schedule, Wiring, ahead_of
from sipsim.collectives.semantics import Task
from sipsim.config.schema import IpcqKnobs
from sipsim.core.units import BYTES_PER_KIB
from sipsim.fabric.graph import Node, port_node

Ps = int
Route = tuple[Port, ...]
"""Route of a message: the port by which it leaves each SIP, in order."""


Ends = tuple[tuple[int, int, int], str, tuple[int, int, int]]
"""(source PE, direction, destination PE), each PE as (SIP, cube, PE)."""


class CommandTimes:
    """Cached times of a worker's commands by :class:`Prices`, computed for PE 0 of cube 0. The cached functions do not
    refer to this object, so there is no reference cycle.

    ``knobs``: the queue settings of an algorithm. ``wake_ps``: time from an event until the waiting PE sees it: a
    wake-up, or half a polling interval and a poll.
    """

    def __init__(self, system: AhbmSystem, knobs: IpcqKnobs) -> None:
        prices, parts = Prices(system, knobs), system.resolved.components
        wakes = backpressure_of(knobs, parts.pe_cpu)
        self.issue_ps = sum_ps(prices.fixed("issue"))
        self.wake_ps = wakes.poll_ps + wakes.most_ps // 2 if wakes.polls else wakes.wake_ps
        self.math_ps = cache(MathTimes(parts.pe_math).latency_ps)
        self.load_ps = cache(partial(_load_ps, prices))
        self.store_ps = cache(partial(_store_ps, prices))
        self.latch_ps = cache(partial(_latch_ps, prices, knobs))
        self.message_ps = cache(partial(_message_ps, prices, knobs.buffer_kind))
        self.credit_ps = cache(partial(_credit_ps, prices, knobs))
        self.link_ps = cache(partial(_link_ps, system, WireFormat(knobs)))


_PLACE = 0, 0, 0
_HBM = PhysAddr(*_PLACE, "hbm", 0).encode()


def _load_ps(prices: Prices, nbytes: int) -> tuple[Ps, Ps]:
    """Return the times of a load from a PE's own HBM: from the command to the first bytes, and of the bytes."""
    return _head_and_bytes_ps(prices.read(_PLACE, _HBM, nbytes))


def _store_ps(prices: Prices, nbytes: int) -> Ps:
    """Return the time of a store to a PE's own HBM."""
    return sum_ps(prices.write(_PLACE, _HBM, nbytes))


def _latch_ps(prices: Prices, knobs: IpcqKnobs, nbytes: int) -> Ps:
    """Return the time to copy a message out of its slot."""
    if knobs.latch != COPY:
        return sum_ps(prices.fixed("issue")) if knobs.latch == IN_PLACE else 0
    start = ring_memory(prices.system, knobs.buffer_kind).offset
    slot = ring_pa(prices.system, PePlace(*_PLACE), knobs.buffer_kind, start)
    return sum_ps(prices.latch(_PLACE, slot, nbytes))


def _message_ps(prices: Prices, kind: str, ends: Ends, nbytes: int) -> tuple[Ps, Ps]:
    """Return the times of a message: of its head from PE to the other PE's ring, and of the bytes behind the head."""
    return _head_and_bytes_ps(prices.message(*ends, kind, nbytes))


def _credit_ps(prices: Prices, knobs: IpcqKnobs, ends: Ends) -> Ps:
    """Return the time in ps for which a receive waits for its credit. Links are symmetric: use the message's route."""
    src, direction, dst = ends
    port = prices.system.port_towards(src[0], dst[0], direction)
    mode = credit_mode_of(knobs.credit_return_mode, prices.system.is_die_to_die(src[0], dst[0], port))
    if knobs.latch == IN_PLACE or mode == PIGGYBACK:
        return 0
    return sum_ps(prices.credit(*ends) if mode == FAST_PATH else prices.injection(*ends))


def _head_and_bytes_ps(price: Price) -> tuple[Ps, Ps]:
    drain_ps = bytes_ps(price)
    return sum_ps(price) - drain_ps, drain_ps


def _link_ps(system: AhbmSystem, wire_format: WireFormat, port: Port, nbytes: int) -> Ps:
    """Return the time in ps for which a message occupies the link behind a port."""
    return system.link_of(*port).drain_ps(wire_format.message_bytes(nbytes))


class Move(NamedTuple):
    """Send or receive of ``tiles`` messages of ``nbytes`` each in a direction. ``key``: (flow, round), equal for the
    matching move of the peer. ``loads``: number of commands that load the worker's own values, ``load_bytes`` each;
    ``stores``: number of commands that store results, ``store_bytes`` each.
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
    """Equal workers at ``places``, each of which runs all ``flows`` on the share ``width / whole`` of the data."""

    places: tuple[Place, ...]
    flows: tuple[int, ...]
    width: tuple[int, ...]
    whole: int

    @property
    def workers(self) -> int:
        """Number of workers."""
        return len(self.places)


def threads_of(schedule: Schedule, places: tuple[Place, ...], most_per_flow: int) -> list[Thread]:
    """Return the threads of a rank, at most ``most_per_flow`` per flow. Threads are equal on all ranks."""
    n_flows, n_workers = len(schedule), len(places)
    weights = [flow.weight for flow in schedule]
    per_flow = max(n_workers // n_flows, 1)
    whole = per_flow * sum(weights)
    if n_workers < n_flows:
        shares = [tuple(range(worker, n_flows, n_workers)) for worker in range(n_workers)]
        return [
            Thread((places[worker],), flows, tuple(weights[flow] for flow in flows), whole)
            for worker, flows in enumerate(shares)
        ]
    threads = []
    for flow, weight in enumerate(weights):
        of_flow = [places[position * n_flows + flow] for position in range(per_flow)]
        parts = min(most_per_flow, per_flow)
        for part in range(parts):
            of_part = of_flow[part * per_flow // parts : (part + 1) * per_flow // parts]
            threads.append(Thread(tuple(of_part), (flow,), (weight,), whole))
    return threads


def passes_through(task: Task, thread: Thread) -> int:
    """Return the number of passes of a worker over its flows; a pass handles a part of the worker's data."""
    return passes_of(task, max(thread.width), thread.whole, len(thread.flows))


def moves_of(
    task: Task, schedule: Schedule, thread: Thread, rank: int, tile: int, shards: Shards, ahead: int
) -> list[Move]:
    """Return a thread's moves on a rank, sends hoisted over up to ``ahead`` messages of ``tile`` elements."""
    passes = passes_through(task, thread)
    found: list[tuple[tuple[int, int], Move]] = []
    for flow, width in zip(thread.flows, thread.width, strict=True):
        share = task.n_elem * width / (thread.whole * passes * schedule[flow].pieces)
        moves = _moves_of_flow(task, schedule[flow], flow, rank, share, _tile(tile, share, shards))
        is_dense = task.collective.cut == VECTOR or width == thread.whole * passes
        found += _with_coalesced(moves, 0 if is_dense else task.n_elem * task.itemsize)
    if len(thread.flows) > 1:
        found.sort(key=lambda each: each[0])
    return hoisted_sends(
        (move for _, move in found), ahead, attrgetter("is_send"), attrgetter("direction", "tiles"), _has_blocks_of
    )


def _with_coalesced(moves: list[tuple[tuple[int, int], Move]], unit_bytes: int) -> list[tuple[tuple[int, int], Move]]:
    """Coalesce small accesses, as fewer, larger ones: all loads in the first moves that load, all stores in the last.

    ``unit_bytes``: distance between the pieces of a worker; 0 if the pieces are contiguous.
    """
    if not moves or moves[0][1].nbytes * 2 > COALESCED_BYTES:
        return moves
    nbytes, found = moves[0][1].nbytes, list(moves)
    in_load = 1 + (COALESCED_BYTES - nbytes) // (unit_bytes or nbytes)
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
    """Return the number of elements of a message: at most the elements of a shard."""
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
        head = is_send, direction, (number, step_round)
        return Move(*head, keys, tiles, nbytes, bool(combine), tiles * bool(loads), tiles * stores, nbytes, nbytes)

    for step in flow.steps_of(rank):
        if step.sends:
            found.append(((step.round, number), move(True, step.round, step.send, step.sends, 0)))
        if step.recvs:
            found.append(((step.round, number), move(False, step.round, step.recv, step.recvs, step.combine)))
    return found


MOST_MOVES = 6000
"""Limit of the moves of all threads; the number of threads is reduced to meet it."""
MOST_THREADS = 4
"""Maximum number of threads per flow: while one thread waits for a message, the others keep a link busy."""


class Links(NamedTuple):
    """Load of all links in one pass, by the port at which a link leaves its SIP.

    ``busy``: time in ps for which the link carries bytes. ``users``: bytes that each thread sends over the link.
    """

    busy: Counter[Port]
    users: dict[Port, Counter[int]]


class Crossing(NamedTuple):
    """Times of one message. ``drain_ps``: of the bytes behind the head. ``occupied``: on each link of its route."""

    head_ps: Ps
    drain_ps: Ps
    occupied: list[Ps]


class Workload:
    """Workload of a planned collective: its moves, the links that it uses, and their times. Values are cached.

    If all ranks have the same moves and no two threads share a link, one rank is simulated in place of all: this rank
    receives a message when it has sent its own message of the same step. On shared links, ties make the ranks differ.
    """

    def __init__(self, algorithm: Algorithm, made: PlannedCall) -> None:
        self.task = made.task
        self.made = made
        self._algorithm = algorithm
        self._routes: dict[End, Route] = {}
        self._representative: dict[End, End] = {}
        self._first_of: dict[object, End] = {}
        self._crossings: dict[tuple[int, End, int], Crossing] = {}
        self._factors: dict[Port, float] = {}
        self._edges: dict[tuple[int, str, str, int], list[tuple[int, Ps, int]]] = {}

    @cached_property
    def system(self) -> AhbmSystem:
        """All SIPs and their links."""
        system = self.task.group.system
        assert isinstance(system, AhbmSystem)
        return system

    @cached_property
    def knobs(self) -> IpcqKnobs:
        """The queue settings of the algorithm."""
        return effective_ipcq(self.system.resolved, self._algorithm.name)

    @cached_property
    def commands(self) -> CommandTimes:
        """The times of commands and messages."""
        return CommandTimes(self.system, self.knobs)

    @cached_property
    def schedule(self) -> Schedule:
        """The schedule of the task: its flows."""
        assert self._algorithm.schedule is not None
        schedule: Schedule = self._algorithm.schedule(self.task)
        return schedule

    @cached_property
    def wiring(self) -> Wiring:
        """The wiring of the algorithm for the group."""
        assert self._algorithm.wiring is not None
        wiring: Wiring = self._algorithm.wiring(self.task.group)
        return wiring

    @cached_property
    def rings(self) -> RingSize:
        """The size of the receive rings."""
        return ring_size(self.wiring, self.knobs, self.system.resolved.ccl.defaults.group_KiB * BYTES_PER_KIB)

    @cached_property
    def ranks(self) -> range:
        """Ranks that are simulated: only rank 0 if it represents all ranks, otherwise all ranks."""
        is_one = self._is_alike and self._has_links_of_threads() and self._has_links_alike()
        return range(1 if is_one else self.task.size)

    @cached_property
    def _is_alike(self) -> bool:
        return all(flow.alike for flow in self.schedule)

    def _has_links_of_threads(self) -> bool:
        """Return whether no two threads send in the same direction."""
        flows = [{step.send for step in flow.steps_of(0) if step.send} for flow in self.schedule]
        used = [set[str]().union(*(flows[flow] for flow in thread.flows)) for thread in self.threads]
        return sum(map(len, used)) == len(set[str]().union(*used))

    def _has_links_alike(self) -> bool:
        """Return whether each direction uses, on every rank, one link, of one kind and between the same two ports."""
        kinds = set()
        for (rank, direction), (_, back) in self.wiring.items():
            (sip, port), *more = self.route_of((rank, direction))
            if more:
                return False
            kinds.add((direction, back, port, self.system.far_ends[sip, port].port, self.system.link_of(sip, port)))
        return len(self.wiring) == self.task.size * len(kinds) == self.task.size * len({kind[2] for kind in kinds})

    def moves_of(self, thread: Thread, rank: int) -> list[Move]:
        """Return the moves of one thread on one rank."""
        sends = ahead_of(self.schedule).within(self.rings.n_slots).sends
        tile = max(self.rings.slot_size // self.task.itemsize, 1)
        return moves_of(self.task, self.schedule, thread, rank, tile, self.made.shards, sends)

    @cached_property
    def threads(self) -> list[Thread]:
        """The threads of every rank."""
        ranks, times = ((0,), self.task.size) if self._is_alike else (range(self.task.size), 1)
        n_steps = sum(len(flow.steps_of(rank)) for flow in self.schedule for rank in ranks) * times
        limit = max(min(MOST_THREADS, MOST_MOVES // max(2 * n_steps, 1)), 1)
        return threads_of(self.schedule, self.made.places, limit)

    @cached_property
    def passes(self) -> int:
        """Number of passes of a worker over its flows."""
        return max(passes_through(self.task, thread) for thread in self.threads)

    @cached_property
    def moves(self) -> dict[tuple[int, int], list[Move]]:
        """The moves of each (rank, thread)."""
        return {
            (rank, index): self.moves_of(thread, rank)
            for index, thread in enumerate(self.threads)
            for rank in self.ranks
        }

    @cached_property
    def links(self) -> Links:
        """The load of all links in one pass."""
        sent: defaultdict[End, Counter[tuple[int, int]]] = defaultdict(Counter)
        for (rank, thread), moves in self.moves.items():
            for move in moves:
                if move.is_send:
                    sent[rank, move.direction][thread, move.nbytes] += move.tiles * self.threads[thread].workers
        busy: Counter[Port] = Counter()
        users: defaultdict[Port, Counter[int]] = defaultdict(Counter)
        for end, messages in sent.items():
            for port in self.route_of(end):
                for (thread, nbytes), number in messages.items():
                    busy[port] += self.commands.link_ps(port, nbytes) * number
                    users[port][thread] += nbytes * number
        return Links(busy, users)

    def route_of(self, end: End) -> Route:
        """Return the route of a message that a rank sends in a direction."""
        if end not in self._routes:
            self._routes[end] = tuple(route(self.task.group, end[0], self.wiring[end][0], end[1]))
        return self._routes[end]

    def between(self, place: Place, end: End) -> Ends:
        """Return the PEs at ``place`` at both ends of a connection, or at the ends of an equivalent connection: SIPs
        are identical, so messages over the same ports and links take the same time.
        """
        if end not in self._representative:
            far_ends, ports = self.system.far_ends, self.route_of(end)
            shape = tuple((port[1], far_ends[port].port, self.system.link_of(*port)) for port in ports)
            self._representative[end] = self._first_of.setdefault(shape, end)
        first, sips = self._representative[end], self.task.group.sips
        return (sips[first[0]], *place), first[1], (sips[self.wiring[first][0]], *place)

    def crossing(self, thread: int, end: End, nbytes: int) -> Crossing:
        """Return the times of a message of ``nbytes`` that a thread sends from an end."""
        key = thread, end, nbytes
        if key not in self._crossings:
            commands, places = self.commands, self.threads[thread].places
            # Heads do not depend on the size: use 1 byte, so that all sizes share one cached value.
            self._crossings[key] = Crossing(
                max(commands.message_ps(self.between(place, end), 1)[0] for place in places),
                commands.message_ps(self.between(places[0], end), nbytes)[1],
                [round(commands.link_ps(port, nbytes) * self._factor(port, nbytes)) for port in self.route_of(end)],
            )
        return self._crossings[key]

    def _factor(self, port: Port, nbytes: int) -> float:
        """Return the time of the busiest edge between a link and its users, divided by the link's time; at least 1."""
        if port not in self._factors:
            link_ps = self.commands.link_ps(port, nbytes)
            loads: Counter[int] = Counter()
            far = self.system.far_ends[port]
            total = 0
            for thread, nbytes_of in self.links.users[port].items():
                total += nbytes_of
                n_places = len(self.threads[thread].places)
                for edge, takes_ps, used in self._edges_of(thread, port[1], far.port, nbytes):
                    loads[edge] += nbytes_of * takes_ps // n_places * used
            busiest = max(loads.values(), default=0)
            self._factors[port] = max(busiest / (total * link_ps), 1.0) if total and link_ps else 1.0
        return self._factors[port]

    def _edges_of(self, thread: int, port: str, far_port: str, nbytes: int) -> list[tuple[int, Ps, int]]:
        """Return the edges inside SIPs between a thread's workers and a link: id (a fast hash key), the time that a
        message occupies the edge, and the number of workers that use it.
        """
        key, path = (thread, port, far_port, nbytes), self.system.graph.route
        if key in self._edges:
            return self._edges[key]
        nodes = [Node("pe", *place) for place in self.threads[thread].places]
        paths = [(*path(node, port_node(port)).edges, *path(port_node(far_port), node).edges) for node in nodes]
        wire_bytes = WireFormat(self.knobs).message_bytes(nbytes)
        edges = {id(edge): edge for each in paths for edge in each}
        used = Counter(id(edge) for each in paths for edge in each)
        self._edges[key] = [(number, edge.drain_ps(wire_bytes), used[number]) for number, edge in edges.items()]
        return self._edges[key]


Mailbox = tuple[int, int, str]
"""Destination of messages: (rank, thread, direction)."""


class Estimate(NamedTuple):
    """Estimated cost. ``time_ps``: time of the collective without its launch. ``in_a_row``: length of the longest chain
    of messages that depend on each other. ``link_ps``: time for which the busiest link carries bytes.
    """

    time_ps: Ps
    in_a_row: int
    link_ps: Ps


def estimate(algorithm: Algorithm, made: PlannedCall) -> Estimate:
    """Estimate the cost of a task with an algorithm and its workers."""
    return Cost(algorithm, made).estimate()


class _State:
    """State of a thread on a rank. ``free_ps``: end of the last move on PE_CPU; ``first_ps``: end of its first tile.

    ``idle_ps``: idle time between tiles of the last receive, which sends can use. ``depth``: length of the chain of
    dependent messages so far.
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
    """Messages of one move, at link ``hop``. ``behind_ps``: from the last link's head to the first message's end."""

    __slots__ = ("behind_ps", "box", "count", "depth", "hop", "hop_ps", "occupied", "route", "spread_ps")

    def __init__(self, box: Mailbox, route: Route, occupied: list[Ps], count: int, hop_ps: Ps) -> None:
        self.box = box
        self.route = route
        self.occupied = occupied
        self.count = count
        self.hop_ps = hop_ps
        self.hop = self.depth = 0
        self.behind_ps = self.spread_ps = 0


class Cost:
    """Cost of a task with an algorithm and its workers: lower bounds of the time, each cheaper to compute than the next
    bound, and the estimate.
    """

    def __init__(self, algorithm: Algorithm, made: PlannedCall) -> None:
        self._algorithm = algorithm
        self._work = Workload(algorithm, made)
        workers, holders = len(made.places), _holders(made.task, made.shards)
        self._sharers = max(workers // max(holders, 1), 1)

    def formula_ps(self) -> Ps:
        """Return a lower bound of the time for which the busiest link carries bytes, by the algorithm's formula.

        The factor 2/3 accounts for rounding: the estimate's messages have whole elements, for example 2 and not 2.49.
        """
        nbytes = int(self._algorithm.busiest_link(self._work.task) * 2 / 3) * self._work.task.itemsize
        return min((link.drain_ps(nbytes) for link in self._work.system.link_kinds), default=0)

    def worker_ps(self) -> Ps:
        """Return the busy time of one worker's PE_CPU in one pass: the maximum over two ranks that may differ."""
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
        receive_ps = self._receive_ps(rank, place, move)
        return issue_ps + receive_ps + (move.tiles - 1) * (receive_ps + issue_ps)

    def links_ps(self) -> Ps:
        """Return the time for which the busiest link carries bytes."""
        return self._work.passes * max(self._work.links.busy.values(), default=0)

    def estimate(self) -> Estimate:
        """Return the estimate."""
        if self._work.task.size == 1:
            return Estimate(0, 0, 0)
        estimate = self._simulated(1)
        if self._work.passes > 1:
            twice, more = self._simulated(2), self._work.passes - 1
            time_ps = estimate.time_ps + more * (twice.time_ps - estimate.time_ps)
            estimate = Estimate(time_ps, estimate.in_a_row, self._work.passes * estimate.link_ps)
        return estimate

    def _simulated(self, passes: int) -> Estimate:
        """Simulate all moves of ``passes`` passes over the data and return the estimate."""
        states = {key: _State(moves * passes) for key, moves in self._work.moves.items()}
        numbers = count()
        ready: list[tuple[Ps, int, Any]] = [(0, next(numbers), key) for key in states]
        free: defaultdict[Port, Ps] = defaultdict(int)
        busy: Counter[Port] = Counter()
        mail: defaultdict[Mailbox, list[tuple[Ps, Ps, int]]] = defaultdict(list)
        taken: Counter[Mailbox] = Counter()
        waiting: dict[Mailbox, tuple[int, int]] = {}
        end_ps = depth = 0
        while ready:
            now_ps, _, key = heappop(ready)
            if isinstance(key, _Message):
                port = key.route[key.hop]
                start_ps = max(free[port], now_ps)
                free[port] = start_ps + key.occupied[key.hop] * key.count
                busy[port] += key.occupied[key.hop] * key.count
                key.hop += 1
                at_ps = start_ps + key.hop_ps
                if key.hop < len(key.route):
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
        """Return the time at which the last store of a thread ends."""
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
        ports = self._work.route_of((rank, move.direction))
        head_ps, drain_ps, occupied = self._work.crossing(thread, (rank, move.direction), move.nbytes)
        between_ps = max(max(occupied) * workers, drain_ps, (head_ps + drain_ps) // self._work.rings.n_slots)
        to, direction = self._work.wiring[rank, move.direction]
        to %= len(self._work.ranks)
        message = _Message((to, thread, direction), ports, occupied, workers * tiles, head_ps // len(ports))
        # The last message waits at least as long as the first.
        message.behind_ps = head_ps - head_ps // len(ports) * len(ports) + max(drain_ps, max(occupied) * workers)
        message.spread_ps = max((tiles - 1) * between_ps, free_ps - first_ps)
        message.depth = state.depth + 1
        return first_ps, message

    def _receive(self, rank: int, thread: int, state: _State, move: Move, message: tuple[Ps, Ps, int]) -> None:
        commands, tiles = self._work.commands, move.tiles
        first_arrives_ps, last_arrives_ps, depth = message
        state.depth = max(state.depth, depth)
        receive_ps = self._receive_ps(rank, self._work.threads[thread].places[0], move)
        start_ps = state.free_ps + commands.issue_ps
        seen_ps = start_ps if first_arrives_ps <= start_ps else first_arrives_ps + commands.wake_ps
        first_ps = seen_ps + receive_ps
        if move.combines and move.loads:
            first_ps, _ = self._load(state, move, first_ps, first_ps)
        busy_ps = first_ps + (tiles - 1) * (receive_ps + commands.issue_ps)
        last_ps = max(busy_ps, last_arrives_ps + commands.wake_ps + receive_ps if tiles > 1 else 0)
        state.first_ps, state.free_ps, state.idle_ps = first_ps, max(last_ps, state.loaded_ps), last_ps - busy_ps
        if move.stores:
            state.stored_bytes = move.store_bytes

    def _receive_ps(self, rank: int, place: Place, move: Move) -> Ps:
        """Return how long a message occupies its receiver's PE_CPU, from the time at which PE_CPU sees the message."""
        commands = self._work.commands
        receive_ps = commands.latch_ps(move.nbytes)
        receive_ps += commands.credit_ps(self._work.between(place, self._work.wiring[rank, move.direction]))
        if move.combines:
            receive_ps += commands.issue_ps + commands.math_ps(move.nbytes)
        return receive_ps + commands.issue_ps * (move.stores + move.loads) // move.tiles

    def _load(self, state: _State, move: Move, first_ps: Ps, free_ps: Ps) -> tuple[Ps, Ps]:
        """Return ``first_ps`` and ``free_ps`` (see ``_State``) with the time of the loads, which are issued ahead."""
        latency_ps, bytes_ps = self._work.commands.load_ps(move.load_bytes)
        bytes_ps *= self._sharers
        begins_ps = state.loaded_ps or latency_ps + self._work.commands.issue_ps
        state.loaded_ps = begins_ps + bytes_ps * move.loads
        return max(first_ps, begins_ps + bytes_ps), max(free_ps, state.loaded_ps)


def _holders(task: Task, shards: Shards) -> int:
    """Return the number of PEs of a SIP that hold a tensor."""
    whole = task.collective.elements(task.n_elem, task.size)
    return max((numel // shard for numel, shard in zip(whole, shards, strict=True) if shard), default=1)
