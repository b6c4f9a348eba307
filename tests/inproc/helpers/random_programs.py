"""Random kernels on random neighbour tables, and a model of bounded queues that predicts their outcome. Not a test.

A *program* is a list of operations for each of some PEs, and the rings between them. The model has rings with so many
slots and nothing else: no time, addresses, credits, or code of the simulator. Its prediction does not depend on the
order in which it runs the PEs, except for a receive from any direction: then it is given the direction that was chosen,
and checks whether that was possible.
"""

import random
from typing import NamedTuple

RingName = tuple[int, str]
"""(rank of the receiver, its direction)."""
WORDS = (1, 2, 13, 16, 64)
LARGE = (15, 16, 256)
"""A slot has 1 KiB: 256 words fill it."""


class Op(NamedTuple):
    """``send`` (or ``forward``, what was received last), ``recv``, ``post`` (whose future ``wait`` waits for),
    ``any``, ``pause``, ``add``, ``store``.

    ``words``: of the message; ``tag``: what it holds, the future's number, or picoseconds; ``how``: from where it is
    sent, or to where it is copied.
    """

    kind: str
    direction: str = ""
    words: int = 0
    tag: int = 0
    how: str = ""


class Program(NamedTuple):
    """``table``: neighbours by rank; ``rings``: who sends (rank, direction) into each ring; ``ops`` by rank."""

    shape: str
    table: dict[int, dict[str, int]]
    rings: dict[RingName, tuple[int, str]]
    ops: list[list[Op]]
    n_slots: int

    @property
    def has_any(self) -> bool:
        return any(op.kind == "any" for ops in self.ops for op in ops)


# --- tables ---------------------------------------------------------------------------------------------------

OPPOSITE = {"E": "W", "W": "E", "N": "S", "S": "N", "global_E": "global_W", "global_W": "global_E"}


def ring(rng: random.Random) -> dict[int, dict[str, int]]:
    size = rng.choice((2, 2, 3, 4, 5))
    east, west = rng.choice((("E", "W"), ("global_E", "global_W")))
    return {rank: {east: (rank + 1) % size, west: (rank - 1) % size} for rank in range(size)}


def one_way_ring(rng: random.Random) -> dict[int, dict[str, int]]:
    size = rng.choice((3, 4, 5))
    return {rank: {"E": (rank + 1) % size} for rank in range(size)}


def mesh(rng: random.Random) -> dict[int, dict[str, int]]:
    width, height = rng.choice(((2, 2), (3, 2), (2, 1)))
    table: dict[int, dict[str, int]] = {rank: {} for rank in range(width * height)}
    for rank, ways in table.items():
        x, y = rank % width, rank // width
        for name, dx, dy in (("E", 1, 0), ("W", -1, 0), ("N", 0, -1), ("S", 0, 1)):
            if 0 <= x + dx < width and 0 <= y + dy < height:
                ways[name] = rank + dx + dy * width
    return table


def tree(rng: random.Random) -> dict[int, dict[str, int]]:
    size = rng.choice((3, 5, 6))
    table: dict[int, dict[str, int]] = {rank: {} for rank in range(size)}
    for child in range(1, size):
        parent = (child - 1) // 2
        table[child]["parent"] = parent
        table[parent][f"child{child % 2}"] = child
    return table


def graph(rng: random.Random) -> dict[int, dict[str, int]]:
    """Some pairs joined both ways, some one way, some by two links; now and then a rank is its own neighbour."""
    size = rng.choice((2, 3, 4, 5))
    table: dict[int, dict[str, int]] = {rank: {} for rank in range(size)}
    paired: set[int] = set()
    for a in range(size):
        for b in range(a + 1, size):
            kind = rng.choice(("none", "one", "mutual", "mutual", "double"))
            if kind == "double" and not {a, b} & paired:
                paired |= {a, b}
                for rank, far in ((a, b), (b, a)):
                    table[rank].update({"E": far, "W": far})
            elif kind == "one":
                table[a][f"{a}to{b}"] = b
            elif kind != "none":
                table[a][f"to{b}"], table[b][f"to{a}"] = b, a
    if rng.random() < 0.2:
        table[0]["self"] = 0
    if not any(table.values()):
        table[0]["to1"], table[1]["to0"] = 1, 0
    return table


SHAPES = {"ring": ring, "one-way ring": one_way_ring, "mesh": mesh, "tree": tree, "graph": graph}


def rings_of(table: dict[int, dict[str, int]]) -> dict[RingName, tuple[int, str]]:
    """ADR-0025: into the opposite direction if it points back, else any that does, else a ring made for it."""
    rings: dict[RingName, tuple[int, str]] = {}
    for rank, ways in table.items():
        for name, peer in ways.items():
            opposite = OPPOSITE.get(name, name)
            back = [way for way, far in table[peer].items() if far == rank]
            rings[peer, opposite if opposite in back or not back else back[0]] = (rank, name)
    return rings


# --- programs -------------------------------------------------------------------------------------------------


class _Writer:
    """Writes a program that a single thread of control could run, receive by receive; mistakes may be added later."""

    def __init__(self, rng: random.Random, program: Program, ahead: int) -> None:
        self.rng = rng
        self.program = program
        self.ahead = ahead
        self.uniform = rng.random() < 0.5
        self.words = rng.choice(WORDS + LARGE)
        self.takes_any = {rank for rank in program.table if rng.random() < rng.choice((0.0, 0.0, 0.5))}
        self.asynchronous = rng.choice((0.0, 0.2, 0.6))
        self.copies = rng.choice((0.0, 0.3))
        self.sent = dict.fromkeys(program.rings, 0)
        self.taken = dict.fromkeys(program.rings, 0)
        self.sizes: dict[RingName, list[int]] = {name: [] for name in program.rings}
        self.futures: dict[int, list[tuple[int, str]]] = {rank: [] for rank in program.table}
        self.pauses = rng.choice(((0,), (0, 1_000, 1_000), (0, 100_000, 3_000_000), (37, 20_000)))
        self.tags = 0

    def step(self) -> None:
        rng = self.rng
        name = rng.choice(list(self.program.rings))
        in_flight = self.sent[name] - self.taken[name]
        if rng.random() < 0.55 and in_flight < self.ahead:
            self.send(name)
        elif in_flight:
            self.receive(name)
        rank = rng.choice(list(self.program.table))
        ops, kind = self.program.ops[rank], rng.random()
        if kind < 0.25:
            ops.append(Op("pause", tag=rng.choice(self.pauses)))
        elif kind < 0.3:
            ops.append(Op(rng.choice(("add", "store"))))
        elif kind < 0.5:
            self.wait(rank)

    def send(self, name: RingName) -> None:
        rng, (sender, direction) = self.rng, self.program.rings[name]
        words = self.words if self.uniform or name[0] in self.takes_any else rng.choice(WORDS + LARGE)
        self.sizes[name].append(words)
        self.sent[name] += 1
        self.tags += 1
        # Sizes of forwarded messages are only known where all are alike.
        kind = "forward" if self.uniform and rng.random() < 0.3 else "send"
        how = rng.choice(("handle", "handle", "tcm", "hbm", "sram", "far"))
        self.program.ops[sender].append(Op(kind, direction, words, self.tags, how))

    def receive(self, name: RingName) -> None:
        rng, (rank, direction) = self.rng, name
        words = self.sizes[name][self.taken[name]]
        self.taken[name] += 1
        ops = self.program.ops[rank]
        how = rng.choice(("tcm", "hbm", "sram")) if rng.random() < self.copies else ""
        if rank in self.takes_any and rng.random() < 0.7:
            ops.append(Op("any", "", words, 0, how))
        elif rng.random() < self.asynchronous:
            self.tags += 1
            ops.append(Op("post", direction, words, self.tags, how))
            self.futures[rank].append((self.tags, direction))
        else:
            ops.append(Op("recv", direction, words, 0, how))

    def wait(self, rank: int) -> None:
        if self.futures[rank]:
            tag, direction = self.futures[rank].pop(self.rng.randrange(len(self.futures[rank])))
            self.program.ops[rank].append(Op("wait", direction, 0, tag))

    def end(self) -> None:
        for name in self.program.rings:
            while self.taken[name] < self.sent[name] and self.rng.random() < 0.9:
                self.receive(name)
        for rank in self.program.table:
            while self.futures[rank] and self.rng.random() < 0.95:
                self.wait(rank)


def random_program(seed: int) -> Program:
    rng = random.Random(seed)
    shape = rng.choice(list(SHAPES))
    table = SHAPES[shape](rng)
    n_slots = rng.choice((1, 1, 2, 3, 4, 8))
    program = Program(shape, table, rings_of(table), [[] for _ in table], n_slots)
    writer = _Writer(rng, program, rng.choice((n_slots, n_slots, n_slots, n_slots + 2)))
    for _ in range(rng.choice((10, 30, 60, 100))):
        writer.step()
    writer.end()
    for _ in range(rng.choice((0, 0, 1, 2, 4))):
        _spoil(rng, program)
    _fit_sizes(program, writer.sizes)
    return program


def _spoil(rng: random.Random, program: Program) -> None:
    """Leave an operation out or move it forward: mistakes of programmers, which may deadlock."""
    ops = rng.choice([ops for ops in program.ops if ops] or [[Op("pause")]])
    index = rng.randrange(len(ops))
    if rng.random() < 0.5:
        # Not a post, which its wait needs, nor a wait, without which nothing is missing.
        if ops[index].kind in ("send", "recv"):
            del ops[index]
        return
    receives = [i for i, op in enumerate(ops) if op.kind in ("recv", "any")]
    if receives:
        op = ops.pop(rng.choice(receives))
        ops.insert(max(0, index - 1), op)


def _fit_sizes(program: Program, sizes: dict[RingName, list[int]]) -> None:
    """Set the size of each receive to that of its message."""
    into = {sender: name for name, sender in program.rings.items()}
    for rank, ops in enumerate(program.ops):
        sent, asked = dict.fromkeys(program.rings, 0), dict.fromkeys(program.rings, 0)
        for index, op in enumerate(ops):
            if op.kind in ("send", "forward"):
                name, count = into[rank, op.direction], sent
            elif op.kind in ("recv", "post"):
                name, count = (rank, op.direction), asked
            else:
                continue
            ops[index] = op._replace(words=sizes[name][count[name]])
            count[name] += 1


# --- the model ------------------------------------------------------------------------------------------------


class Blocked(NamedTuple):
    """Where a PE is blocked: the index of its operation, and what it waits for."""

    at: int
    op: str
    directions: tuple[str, ...]


class Verdict(NamedTuple):
    """``blocked``: by rank, those that do not end; ``got``: by rank, (direction, tag, words) of all receives in
    order of their operations; ``sent`` and ``taken``: messages by ring; ``full``: whether a send met a full ring.
    """

    blocked: dict[int, Blocked]
    got: dict[int, list[tuple[str, int, int]]]
    sent: dict[RingName, int]
    taken: dict[RingName, int]
    full: bool


class Impossible(AssertionError):
    """A PE received from a direction in which there was no message."""


class _Model:
    def __init__(self, program: Program, choices: dict[int, list[str]]) -> None:
        self.program = program
        self.choices = {rank: list(said) for rank, said in choices.items()}
        self.sent: dict[RingName, list[tuple[int, int]]] = {name: [] for name in program.rings}
        self.posted = dict.fromkeys(program.rings, 0)
        self.into = {sender: name for name, sender in program.rings.items()}
        self.at = dict.fromkeys(program.table, 0)
        self.asked: dict[tuple[int, int], int] = {}
        self.got: dict[int, list[tuple[str, int, int]]] = {rank: [] for rank in program.table}
        self.last: dict[int, tuple[int, int] | None] = dict.fromkeys(program.table)
        self.full = False

    def taken(self, name: RingName) -> int:
        return min(len(self.sent[name]), self.posted[name])

    def run(self) -> None:
        while any(self.turn(rank) for rank in self.program.table):
            pass

    def turn(self, rank: int) -> bool:
        """Whether a rank made progress."""
        start = self.at[rank]
        while self.at[rank] < len(self.program.ops[rank]) and self.does(rank, self.program.ops[rank][self.at[rank]]):
            self.at[rank] += 1
        return self.at[rank] > start

    def does(self, rank: int, op: Op) -> bool:
        if op.kind in ("send", "forward"):
            name = self.into[rank, op.direction]
            if len(self.sent[name]) - self.taken(name) >= self.program.n_slots:
                self.full = True
                return False
            message = self.last[rank] if op.kind == "forward" else None
            self.sent[name].append(message or (op.tag, op.words))
            return True
        if op.kind == "post":
            self.asked[rank, op.tag] = self.posted[rank, op.direction]
            self.posted[rank, op.direction] += 1
            return True
        if op.kind == "wait":
            return self.takes(rank, op.direction, self.asked[rank, op.tag])
        if op.kind in ("recv", "any"):
            return self.receives(rank, op)
        return True

    def receives(self, rank: int, op: Op) -> bool:
        key = rank, -1 - self.at[rank]
        direction = op.direction
        if op.kind == "any":
            if not self.choices.get(rank):
                return False
            direction = self.choices[rank][0]
        if key not in self.asked:
            self.asked[key] = self.posted[rank, direction]
            if op.kind == "any" and len(self.sent[rank, direction]) <= self.posted[rank, direction]:
                del self.asked[key]
                return False
            self.posted[rank, direction] += 1
        if not self.takes(rank, direction, self.asked[key]):
            return False
        if op.kind == "any":
            self.choices[rank].pop(0)
        return True

    def takes(self, rank: int, direction: str, number: int) -> bool:
        messages = self.sent[rank, direction]
        if len(messages) <= number:
            return False
        self.last[rank] = messages[number]
        self.got[rank].append((direction, *messages[number]))
        return True

    def blocked(self, rank: int) -> Blocked | None:
        if self.at[rank] == len(self.program.ops[rank]):
            return None
        op = self.program.ops[rank][self.at[rank]]
        if op.kind == "any":
            directions = tuple(sorted(way for r, way in self.program.rings if r == rank))
            if self.choices.get(rank):
                raise Impossible(f"rank {rank} cannot have received from {self.choices[rank][0]}")
            waiting = [w for w in directions if (rank, w) in self.sent and self.has_some(rank, w)]
            if waiting:
                raise Impossible(f"rank {rank} waits for any message, and there is one from {waiting}")
            return Blocked(self.at[rank], "recv", directions)
        return Blocked(self.at[rank], "send" if op.kind in ("send", "forward") else "recv", (op.direction,))

    def has_some(self, rank: int, direction: str) -> bool:
        return len(self.sent[rank, direction]) > self.posted[rank, direction]


def judge(program: Program, choices: dict[int, list[str]] | None = None) -> Verdict:
    """The outcome of a program. ``choices``: by rank, the direction of each receive from any direction.

    Raises:
        Impossible: when no run could make these choices.
    """
    model = _Model(program, choices or {})
    model.run()
    blocked = {rank: model.blocked(rank) for rank in program.table}
    return Verdict(
        {rank: where for rank, where in blocked.items() if where is not None},
        model.got,
        {name: len(messages) for name, messages in model.sent.items()},
        {name: model.taken(name) for name in program.rings},
        model.full,
    )


def circle(program: Program, blocked: dict[int, Blocked]) -> bool:
    """Whether PEs that are blocked, none of them on any direction, wait for each other in a circle."""
    waits_for: dict[int, int] = {}
    for rank, where in blocked.items():
        (direction,) = where.directions
        if where.op == "send":
            waits_for[rank] = program.table[rank][direction]
        else:
            waits_for[rank] = program.rings[rank, direction][0]
    for start in waits_for:
        seen, here = {start}, waits_for[start]
        while here in waits_for and here not in seen:
            seen.add(here)
            here = waits_for[here]
        if here in seen:
            return True
    return False
