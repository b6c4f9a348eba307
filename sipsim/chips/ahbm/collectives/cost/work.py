"""The work of a collective: threads and moves of all ranks, and the times of their messages on each link. Pure.

Limit of size: there are at most ``MOST_MOVES`` moves in all threads where fewer threads can stand for them.
"""

from collections import Counter, defaultdict
from functools import cached_property
from typing import NamedTuple

from sipsim.chips.ahbm.collectives.algorithm import Algorithm
from sipsim.chips.ahbm.collectives.cost.commands import Commands, Ways
from sipsim.chips.ahbm.collectives.cost.threads import Move, Thread, moves_of, passes_through, threads_of
from sipsim.chips.ahbm.collectives.launch.launch import SENDS_AHEAD, Prepared
from sipsim.chips.ahbm.collectives.settings import effective_ipcq
from sipsim.chips.ahbm.collectives.wirings.install import RingSize, ring_size
from sipsim.chips.ahbm.system import System
from sipsim.collectives.group.traffic import Port, route
from sipsim.collectives.schedule.steps import End, Schedule, Wiring
from sipsim.config.schema.model import IpcqKnobs
from sipsim.core.units import BYTES_PER_KIB

Ps = int
MOST_MOVES = 6000
MOST_THREADS = 4
"""The most threads of a flow: one waits for a message while others keep a link busy."""


class Links(NamedTuple):
    """The load of all links in one pass. The key is the port by which a link leaves its SIP.

    ``busy``: the time in ps for which the link carries bytes. ``users``: by thread, the bytes that it sends there.
    """

    busy: Counter[Port]
    users: dict[Port, Counter[int]]


class Crossing(NamedTuple):
    """The times of one message: of its head, of the bytes behind it, and on each link of its route (``occupied``)."""

    head_ps: Ps
    drain_ps: Ps
    occupied: list[Ps]


class Work:
    """The work of a task with an algorithm and its workers. Each part is computed at its first use.

    Where all ranks do the same and every link has one thread as its only user, one rank stands for all: what comes to
    it comes when it has sent the same itself. With several users, ties between them part the ranks.
    """

    def __init__(self, algorithm: Algorithm, made: Prepared) -> None:
        self.task = made.task
        self.made = made
        self._algorithm = algorithm
        self._ways_of: dict[End, Ways] = {}
        self._stands_for: dict[End, Ways] = {}
        self._first_of: dict[object, Ways] = {}
        self._crossings: dict[tuple[int, End, int], Crossing] = {}
        self._factors: dict[Port, float] = {}
        self._edges: dict[tuple[int, str, str, int], list[tuple[int, Ps, int]]] = {}

    @cached_property
    def system(self) -> System:
        """All SIPs and their links."""
        system = self.task.group.system
        assert isinstance(system, System)
        return system

    @cached_property
    def knobs(self) -> IpcqKnobs:
        """The queue settings of the algorithm."""
        return effective_ipcq(self.system.resolved, self._algorithm.name)

    @cached_property
    def commands(self) -> Commands:
        """Times of commands and ways."""
        return Commands(self.system, self.knobs)

    @cached_property
    def schedule(self) -> Schedule:
        """The schedule of the task: its flows."""
        assert self._algorithm.schedule is not None
        schedule: Schedule = self._algorithm.schedule(self.task)
        return schedule

    @cached_property
    def wiring(self) -> Wiring:
        """The queue pairs: by (rank, direction), the rank and direction at the other end."""
        assert self._algorithm.wiring is not None
        wiring: Wiring = self._algorithm.wiring(self.task.group)
        return wiring

    @cached_property
    def rings(self) -> RingSize:
        """The rings of each direction."""
        return ring_size(self.wiring, self.knobs, self.system.resolved.ccl.defaults.group_KiB * BYTES_PER_KIB)

    @cached_property
    def ranks(self) -> range:
        """The ranks that are estimated: rank 0 where all ranks do the same, else all."""
        is_one = self._is_alike and self._has_links_of_threads() and self._has_links_alike()
        return range(1 if is_one else self.task.size)

    @cached_property
    def _is_alike(self) -> bool:
        return all(flow.alike for flow in self.schedule)

    def _has_links_of_threads(self) -> bool:
        """Whether no two threads send in one direction."""
        flows = [{step.send for step in flow.steps_of(0) if step.send} for flow in self.schedule]
        used = [set[str]().union(*(flows[flow] for flow in thread.flows)) for thread in self.threads]
        return sum(map(len, used)) == len(set[str]().union(*used))

    def _has_links_alike(self) -> bool:
        """Whether each direction leads from all ranks over one link, of one kind and between the same two ports."""
        kinds = set()
        for (rank, direction), (_, back) in self.wiring.items():
            (sip, port), *more = self.ways((rank, direction))
            if more:
                return False
            kinds.add((direction, back, port, self.system.far_ends[sip, port].port, self.system.link_of(sip, port)))
        return len(self.wiring) == self.task.size * len(kinds) == self.task.size * len({kind[2] for kind in kinds})

    def moves_of(self, thread: Thread, rank: int) -> list[Move]:
        """The moves of one thread on one rank."""
        ahead, tile = min(SENDS_AHEAD, self.rings.n_slots - 1), max(self.rings.slot_size // self.task.itemsize, 1)
        return moves_of(self.task, self.schedule, thread, rank, tile, self.made.shards, ahead)

    @cached_property
    def threads(self) -> list[Thread]:
        """The threads of every rank."""
        ranks, times = ((0,), self.task.size) if self._is_alike else (range(self.task.size), 1)
        n_steps = sum(len(flow.steps_of(rank)) for flow in self.schedule for rank in ranks) * times
        most = max(min(MOST_THREADS, MOST_MOVES // max(2 * n_steps, 1)), 1)
        return threads_of(self.schedule, self.made.places, most)

    @cached_property
    def passes(self) -> int:
        """How often a worker goes through its flows."""
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
            for way in self.ways(end):
                for (thread, nbytes), number in messages.items():
                    busy[way] += self.commands.link_ps(way, nbytes) * number
                    users[way][thread] += nbytes * number
        return Links(busy, users)

    def ways(self, end: End) -> Ways:
        """The ports by which a message in a direction of a rank leaves SIPs."""
        if end not in self._ways_of:
            self._ways_of[end] = tuple(route(self.task.group, end[0], self.wiring[end][0], end[1]))
        return self._ways_of[end]

    def standing_for(self, end: End) -> Ways:
        """Ways through the same ports and links as those of an end: SIPs are alike, so they take the same time."""
        if end not in self._stands_for:
            far_ends, ways = self.system.far_ends, self.ways(end)
            shape = tuple((way[1], far_ends[way].port, self.system.link_of(*way)) for way in ways)
            self._stands_for[end] = self._first_of.setdefault(shape, ways)
        return self._stands_for[end]

    def crossing(self, thread: int, end: End, nbytes: int) -> Crossing:
        """The times of a message of ``nbytes`` that a thread sends from an end."""
        key = thread, end, nbytes
        if key not in self._crossings:
            commands, places, ways = self.commands, self.threads[thread].places, self.standing_for(end)
            self._crossings[key] = Crossing(
                max(commands.head_ps(place, ways) for place in places),
                commands.drain_ps(places[0], ways, nbytes),
                [round(commands.link_ps(way, nbytes) * self._factor(way, nbytes)) for way in self.ways(end)],
            )
        return self._crossings[key]

    def _factor(self, way: Port, nbytes: int) -> float:
        """How much longer than a link the narrowest edge between it and all that use it needs for their bytes."""
        if way not in self._factors:
            link_ps = self.commands.link_ps(way, nbytes)
            loads: Counter[int] = Counter()
            far = self.system.far_ends[way]
            total = 0
            for thread, nbytes_of in self.links.users[way].items():
                total += nbytes_of
                n_places = len(self.threads[thread].places)
                for edge, takes_ps, used in self._edges_of(thread, way[1], far.port, nbytes):
                    loads[edge] += nbytes_of * takes_ps // n_places * used
            most = max(loads.values(), default=0)
            self._factors[way] = max(most / (total * link_ps), 1.0) if total and link_ps else 1.0
        return self._factors[way]

    def _edges_of(self, thread: int, port: str, far_port: str, nbytes: int) -> list[tuple[int, Ps, int]]:
        """The edges inside SIPs between a thread's workers and a link, by their ids, which are sooner hashed: for how
        long a message takes each, and how many workers use it.
        """
        key, commands = (thread, port, far_port, nbytes), self.commands
        if key in self._edges:
            return self._edges[key]
        ways = [
            (*commands.inside(place, port)[0], *commands.inside(place, far_port)[1])
            for place in self.threads[thread].places
        ]
        edges = {id(edge): edge for way in ways for edge in way}
        used = Counter(id(edge) for way in ways for edge in way)
        self._edges[key] = [(number, commands.edge_ps(edge, nbytes), used[number]) for number, edge in edges.items()]
        return self._edges[key]
