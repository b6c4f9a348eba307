"""Random systems of SIPs that make ties, the device that each SIP simulates, and a plain single-queue reference.

Not a test. ``random_runs`` plays the same systems through the real broker and sessions; the two share the
``Automaton`` and nothing else.
"""

import heapq
import itertools
import random
from collections.abc import Callable
from typing import NamedTuple, Protocol

from broker.ids import MAX_PS, Channel

SYSTEMS = 1000
NEVER_SENDS_PS = MAX_PS
LOCAL_ORIGIN = -1
BITS = 2**64 - 1


class Habits(NamedTuple):
    """How one SIP's device behaves; chances are out of eight unless named otherwise.

    ``reaction_ps``: the least time from an arrival to a sending that it causes. ``early``: the chance to send from a
    hushed event all the same, with an arrival that is late enough. ``wake``: the chance that an arrival ends hushes.
    """

    starts_ps: tuple[int, ...]
    budget: int
    channels: tuple[int, ...]
    local: int
    serve: int
    send: int
    far_ps: int
    gap_ps: int
    hush: int
    early: int
    wake: int
    reaction_ps: int
    host_of_32: int
    may_wait: bool


class System(NamedTuple):
    """Everything that decides the result; the timing of mail, grants and clients is not in it.

    ``far``: packets go to SIPs to which no channel leads, too.
    """

    seed: int
    channels: list[Channel]
    habits: list[Habits]
    far: bool = False

    @property
    def size(self) -> int:
        return len(self.habits)

    @property
    def reactions_ps(self) -> list[int]:
        return [habits.reaction_ps for habits in self.habits]

    def pair_delays_ps(self, src: int) -> dict[int, int]:
        """By destination, the least delay of the channels that lead there from ``src``."""
        least: dict[int, int] = {}
        for channel in self.channels:
            if channel.src == src:
                least[channel.dst] = min(least.get(channel.dst, channel.delay_ps), channel.delay_ps)
        return least

    def far_delays_ps(self, src: int) -> dict[int, int]:
        """By destination without a channel from ``src``: the least delay of all chains that lead there, relaxed over
        and over, with the reactions of the SIPs between.
        """
        near = least = self.pair_delays_ps(src)
        for _ in range(self.size):
            least = dict(least)
            for c in self.channels:
                if c.src != src and c.src in least:
                    over_ps = least[c.src] + self.reactions_ps[c.src] + c.delay_ps
                    least[c.dst] = min(least.get(c.dst, over_ps), over_ps)
        return {dst: delay for dst, delay in sorted(least.items()) if dst != src and dst not in near}


class Outcome(NamedTuple):
    """Per SIP the handled (t, origin, payload), where origin is a channel or LOCAL_ORIGIN, and the waiting kernels."""

    traces: list[list[tuple[int, int, int]]]
    waiting: list[int]


# --- random systems -------------------------------------------------------------------------------------------


def random_system(seed: int) -> System:
    """A small system with few distinct times and delays, so that most events tie."""
    rng = random.Random(seed)
    size = rng.choice((2, 2, 3, 3, 4, 5, 6))
    channels = _random_channels(rng, size)
    idle = {rank for rank in range(size) if rng.random() < 0.25}
    if len(idle) == size or not any(c.src not in idle for c in channels):
        idle = set()
    slowest_ps = max(c.delay_ps for c in channels)
    reactions = rng.choice(((0,), (0, 0, 1, 2), (0, 1, 3, slowest_ps), (0, 5, slowest_ps, 3 * slowest_ps)))
    habits = [_random_habits(rng, rank, channels, rank in idle, rng.choice(reactions)) for rank in range(size)]
    return System(seed, channels, habits)


def _random_channels(rng: random.Random, size: int) -> list[Channel]:
    channels = []
    delays = rng.choice(((1, 2, 3), (2, 2, 3), (1, 4, 9), (3, 5, 20), (2, 30, 3)))
    for src, dst in _random_pairs(rng, size):
        equal = rng.choice(delays)
        same = rng.random() < 0.3
        channels += [
            Channel(src, dst, equal if same else rng.choice(delays), f"{src}>{dst}.{lane}")
            for lane in range(rng.choice((1, 1, 2, 2, 2, 3)))
        ]
    rng.shuffle(channels)
    return channels


def _random_pairs(rng: random.Random, size: int) -> list[tuple[int, int]]:
    ranks = rng.sample(range(size), size)
    chain = list(itertools.pairwise(ranks))
    every = [(a, b) for a in range(size) for b in range(size) if a != b]
    pairs = {
        "chain": lambda: chain,
        "ring": lambda: [*chain, (ranks[-1], ranks[0])],
        "both ways": lambda: [*chain, *((b, a) for a, b in chain)],
        "into one": lambda: [(a, ranks[0]) for a in ranks[1:]] + ([(ranks[0], ranks[1])] if rng.random() < 0.6 else []),
        "some": lambda: rng.sample(every, rng.randint(1, min(len(every), 2 * size))),
    }
    return pairs[rng.choice(("chain", "ring", "ring", "both ways", "into one", "into one", "some"))]()


def _random_habits(rng: random.Random, rank: int, channels: list[Channel], idle: bool, reaction_ps: int) -> Habits:
    return Habits(
        starts_ps=() if idle else tuple(rng.randrange(rng.choice((1, 3, 30))) for _ in range(rng.randint(1, 3))),
        budget=rng.randint(8, 24),
        channels=tuple(i for i, c in enumerate(channels) if c.src == rank),
        local=rng.randint(1, 6),
        serve=rng.choice((0, 2, 4)),
        send=rng.randint(3, 7),
        far_ps=rng.choice((0, 0, 12, 60)),
        gap_ps=rng.choice((4, 25, 90)),
        hush=rng.choice((0, 3, 5, 7)),
        early=rng.choice((4, 6, 8)),
        wake=rng.choice((0, 0, 2, 6)),
        reaction_ps=reaction_ps,
        host_of_32=rng.choice((0, 0, 2, 6)),
        may_wait=rng.random() < 0.15,
    )


# --- the simulated device -------------------------------------------------------------------------------------


class World(Protocol):
    """The simulator around a device."""

    def now_ps(self) -> int: ...
    def at(self, time_ps: int, action: Callable[[], None]) -> None: ...
    def emit(self, channel: int, arrival_ps: int, body: bytes) -> None: ...
    def emit_far(self, dst: int, arrival_ps: int, body: bytes) -> None: ...
    def host(self, action: Callable[[], None]) -> None: ...


class Automaton:
    """A device whose every decision is a hash of all events that it has handled, in order.

    Links and local events share one server, so a swapped tie changes later times as well. An event may be *hushed*
    until some time: packets that it and its consequences send count as sent at that time or later, as
    ``sipsim.core.session`` defines it; they arrive the pair's least delay after it, or later. Promises and
    reactions follow from that: an arrival hushes all that it causes. An arrival may also end other events' hushes.
    """

    def __init__(self, rank: int, system: System, world: World) -> None:
        self.habits = system.habits[rank]
        self.trace: list[tuple[int, int, int]] = []
        self._channels = system.channels
        self._pair_delays_ps = system.pair_delays_ps(rank)
        self._far = list(system.far_delays_ps(rank).items()) if system.far else []
        self._world = world
        self._state = (system.seed * 64 + rank + 1) * 0x9E3779B97F4A7C15 & BITS
        self._server_free_ps = 0
        self._created = 0
        self._pending: dict[int, tuple[int, int]] = {}

    def begin(self) -> None:
        """The first step of the host script, at time zero."""
        for time_ps in self.habits.starts_ps:
            self._later(time_ps, self._draw(50), self._hushed(0, 0))

    def receive(self, channel: int, body: bytes) -> None:
        hush_ps = self._world.now_ps() + self.habits.reaction_ps
        if self.habits.wake and self._draw(8) < self.habits.wake:
            for ticket, (time_ps, until_ps) in self._pending.items():
                self._pending[ticket] = time_ps, min(until_ps, hush_ps)
        self._handle(channel, int.from_bytes(body, "big"), hush_ps)

    def waiting(self) -> int:
        return int(self.habits.may_wait and (self._state >> 20) % 2)

    def next_send_bound_ps(self) -> int:
        """It sends nothing before this time without an arrival; from its local events only."""
        return min((max(pending) for pending in self._pending.values()), default=NEVER_SENDS_PS)

    def _draw(self, sides: int) -> int:
        self._mix(0)
        return (self._state >> 33) % sides

    def _mix(self, value: int) -> None:
        self._state = ((self._state ^ value) * 6364136223846793005 + 1442695040888963407) & BITS

    def _later(self, time_ps: int, payload: int, hush_ps: int) -> None:
        ticket = self._created
        self._created += 1
        self._pending[ticket] = time_ps, hush_ps

        def fire() -> None:
            _, until_ps = self._pending.pop(ticket)
            self._handle(LOCAL_ORIGIN, payload, until_ps)

        self._world.at(time_ps, fire)

    def _handle(self, origin: int, payload: int, hush_ps: int) -> None:
        self._mix(payload * 64 + origin + 1)
        self.trace.append((self._world.now_ps(), origin, payload))
        if len(self.trace) > self.habits.budget:
            return
        if self._draw(32) < self.habits.host_of_32:
            self._world.host(lambda: self._act(hush_ps))
        else:
            self._act(hush_ps)

    def _act(self, hush_ps: int) -> None:
        now_ps, habits, draw = self._world.now_ps(), self.habits, self._draw
        if draw(8) < habits.local:
            gap_ps = (0, 0, 1, 1, 2, 2, 3, habits.gap_ps)[draw(8)]
            self._later(now_ps + gap_ps, draw(50), self._hushed(now_ps, hush_ps))
        if draw(8) < habits.serve:
            self._server_free_ps = max(self._server_free_ps, now_ps) + 1 + draw(2)
            self._later(self._server_free_ps, draw(50), hush_ps)
        if not habits.channels or hush_ps == NEVER_SENDS_PS or (now_ps < hush_ps and draw(8) >= habits.early):
            return
        for _ in range(3):
            if draw(8) < habits.send:
                self._send(now_ps, hush_ps)

    def _hushed(self, now_ps: int, hush_ps: int) -> int:
        if self._draw(8) >= self.habits.hush:
            return hush_ps
        return max(hush_ps, (now_ps + 3, now_ps + 8, now_ps + 30, NEVER_SENDS_PS)[self._draw(4)])

    def _send(self, now_ps: int, hush_ps: int) -> None:
        if self._far and self._draw(3) == 0:
            dst, delay_ps = self._far[self._draw(len(self._far))]
            arrival_ps = max(now_ps, hush_ps) + delay_ps + (0, 0, 1, self._draw(20))[self._draw(4)]
            self._world.emit_far(dst, arrival_ps, self._draw(50).to_bytes(2, "big"))
            return
        channel = self.habits.channels[self._draw(len(self.habits.channels))]
        late_ps = (0, 0, 0, 0, 1, 1, 2, self._draw(self.habits.far_ps + 1))[self._draw(8)]
        _, dst, delay_ps, _ = self._channels[channel]
        arrival_ps = max(now_ps + delay_ps + late_ps, hush_ps + self._pair_delays_ps[dst])
        self._world.emit(channel, arrival_ps, self._draw(50).to_bytes(2, "big"))


# --- the reference --------------------------------------------------------------------------------------------


class _OneQueue:
    """All SIPs in one heap. At equal t arrivals come first, by (source, channel, number), then locals by creation."""

    def __init__(self, system: System) -> None:
        self.system = system
        self.now_ps = 0
        self._heap: list[tuple[tuple[int, ...], Callable[[], None]]] = []
        self._numbers: dict[tuple[int, int], int] = {}
        self.devices = [Automaton(rank, system, _OneSip(rank, self)) for rank in range(system.size)]

    def local(self, rank: int, time_ps: int, created: int, action: Callable[[], None]) -> None:
        heapq.heappush(self._heap, ((time_ps, rank, 1, created), action))

    def packet(self, channel: int, arrival_ps: int, body: bytes) -> None:
        src, dst = self.system.channels[channel][:2]
        self.arrival(src, dst, channel, arrival_ps, body)

    def arrival(self, src: int, dst: int, channel: int, arrival_ps: int, body: bytes) -> None:
        """Far packets come as if by one channel behind all others."""
        number = self._numbers.get((src, dst), 0)
        self._numbers[src, dst] = number + 1
        receive = self.devices[dst].receive
        heapq.heappush(self._heap, ((arrival_ps, dst, 0, src, channel, number), lambda: receive(channel, body)))

    def play(self) -> None:
        for device in self.devices:
            device.begin()
        while self._heap:
            key, action = heapq.heappop(self._heap)
            self.now_ps = key[0]
            action()


class _OneSip:
    def __init__(self, rank: int, queue: _OneQueue) -> None:
        self._rank = rank
        self._queue = queue
        self._created = 0

    def now_ps(self) -> int:
        return self._queue.now_ps

    def at(self, time_ps: int, action: Callable[[], None]) -> None:
        self._queue.local(self._rank, time_ps, self._created, action)
        self._created += 1

    def emit(self, channel: int, arrival_ps: int, body: bytes) -> None:
        self._queue.packet(channel, arrival_ps, body)

    def emit_far(self, dst: int, arrival_ps: int, body: bytes) -> None:
        self._queue.arrival(self._rank, dst, len(self._queue.system.channels), arrival_ps, body)

    def host(self, action: Callable[[], None]) -> None:
        action()


def reference(system: System) -> Outcome:
    """The right outcome."""
    queue = _OneQueue(system)
    queue.play()
    return Outcome([d.trace for d in queue.devices], [d.waiting() for d in queue.devices])


def first_difference(got: Outcome, expected: Outcome) -> str | None:
    """The first difference as one line, or None."""
    for rank, (actual, right) in enumerate(zip(got.traces, expected.traces, strict=True)):
        if actual != right:
            at = next(i for i, (a, b) in enumerate(itertools.zip_longest(actual, right)) if a != b)
            return f"SIP {rank}, event {at}: {actual[at : at + 2]}, must be {right[at : at + 2]}"
    return None if got.waiting == expected.waiting else f"waiting {got.waiting}, must be {expected.waiting}"
