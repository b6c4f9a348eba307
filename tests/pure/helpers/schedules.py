"""Groups without a machine, and schedules carried out as the programs of all workers of all ranks, in NumPy."""

import importlib
import pkgutil
from collections import defaultdict, deque
from collections.abc import Iterator
from types import ModuleType, SimpleNamespace
from typing import Any, cast

import numpy as np

import sipsim.collectives.algorithms
from sipsim.chips.ahbm.collectives.programs import (
    NOWHERE,
    Instruction,
    Shards,
    coalesced,
    farthest_first,
    programs,
)
from sipsim.collectives.group import Group
from sipsim.collectives.reduction import combine
from sipsim.collectives.schedule import ARRIVED_FIRST, Wiring
from sipsim.collectives.semantics import COLLECTIVES, Array, Collective, Task
from sipsim.fabric.links.kind import LinkKind
from sipsim.fabric.sips import FarEnd, SipNetwork
from sipsim.topology.links import TOPOLOGIES, reserved_ports

WHOLE = Shards(0, 0)


class Plain(LinkKind, frozen=True):
    """A link without framing."""

    def wire_bytes(self, payload_bytes: int) -> int:
        return payload_bytes


class Joined(SipNetwork):
    """SIPs and their links by a topology's definition, without chips. Each link carries a byte a nanosecond."""

    def __init__(
        self, topology: str, shape: tuple[int, int], edges: tuple[tuple[int, str, int, str], ...] = ()
    ) -> None:
        self.n_sips = shape[0] * shape[1]
        self.topology = topology
        self.shape = shape
        names = ("a", "a_port", "b", "b_port")
        sips: Any = SimpleNamespace(
            count=self.n_sips,
            topology=topology,
            custom_links=[SimpleNamespace(**dict(zip(names, edge, strict=True))) for edge in edges],
            remote=(),
        )
        self.links = sorted(TOPOLOGIES.get(topology).build(sips, shape))
        self.reserved = reserved_ports(sips, self.links)
        self.link_kinds = [Plain(bandwidth_GBps=1, latency_ns=1)] * len(self.links)
        self.far_ends = {
            (link.src, link.src_port): FarEnd(channel, link.dst, link.dst_port)
            for channel, link in enumerate(self.links)
        }


MODULES: dict[str, ModuleType] = {
    found.name: module
    for found in pkgutil.iter_modules(sipsim.collectives.algorithms.__path__)
    if hasattr(module := importlib.import_module(f"sipsim.collectives.algorithms.{found.name}"), "schedule")
}
"""Every algorithm that is a schedule."""


def group_of(
    topology: str,
    shape: tuple[int, int],
    sips: tuple[int, ...] | None = None,
    edges: tuple[tuple[int, str, int, str], ...] = (),
) -> Group:
    """Some SIPs of a system, or all."""
    return Group(tuple(range(shape[0] * shape[1])) if sips is None else sips, Joined(topology, shape, edges))


def task_of(name: str, group: Group, n_elem: int, root: int = 0, itemsize: int = 4, in_place: bool = False) -> Task:
    """A task of the collective ``name``."""
    return Task(cast(Collective, COLLECTIVES.get(name)), group, n_elem, itemsize, root, in_place)


def sources_of(task: Task, seed: int = 0, dtype: str = "i4") -> list[Array]:
    """Each rank's tensor: small integers, or in a floating type numbers of many sizes."""
    count, _ = task.collective.elements(task.n_elem, task.size)
    rng = np.random.default_rng(seed)
    if np.dtype(dtype).kind == "f":
        exponents = rng.integers(-6, 6, (task.size, count))
        return [*(rng.standard_normal((task.size, count)) * 2.0**exponents).astype(dtype)]
    return [*rng.integers(-9, 10, (task.size, count)).astype(dtype)]


def carry_out(
    module: ModuleType,
    task: Task,
    sources: list[Array],
    op: str = "sum",
    n_workers: int = 1,
    n_slots: int = 1,
    tile: int = 4,
    shards: Shards = WHOLE,
) -> list[Array]:
    """Each rank's result tensor, with zeros where the programs store nothing.

    Raises:
        RuntimeError: when workers wait for each other for ever, or a message is left over.
    """
    _, count = task.collective.elements(task.n_elem, task.size)
    results = [np.zeros(count, sources[0].dtype) for _ in range(task.size)]
    if task.in_place:
        sources = results = [source.copy() for source in sources]
    wiring, schedule = module.wiring(task.group), module.schedule(task)
    made = [programs(task, schedule, rank, n_workers, shards, tile, n_slots - 1) for rank in range(task.size)]
    of_ranks = [
        [coalesced(farthest_first(program, n_slots, _any_order), shards, task.itemsize) for program in of_rank]
        for of_rank in made
    ]
    for worker in range(n_workers):
        rings: defaultdict[tuple[int, str], deque[Array]] = defaultdict(deque)
        going = {
            rank: _worker(of_ranks[rank][worker], rank, wiring, rings, n_slots, sources[rank], results[rank], op)
            for rank in range(task.size)
        }
        while going:
            moved = {rank: next(each, None) for rank, each in going.items()}
            going = {rank: each for rank, each in going.items() if moved[rank] is not None}
            if going and not any(moved.values()) and len(going) == len(moved):
                raise RuntimeError(f"deadlock of worker {worker} of ranks {sorted(going)}")
        if any(rings.values()):
            raise RuntimeError(f"messages are left: {[end for end, ring in rings.items() if ring]}")
    return results


def _any_order(direction: str) -> int:
    """Ways of any length."""
    return sum(map(ord, direction)) % 3


def _worker(
    program: list[Instruction],
    rank: int,
    wiring: Wiring,
    rings: defaultdict[tuple[int, str], deque[Array]],
    n_slots: int,
    source: Array,
    result: Array,
    op: str,
) -> Iterator[bool]:
    """Yields whether it has moved a message since; a held value is used or is an error at the end."""
    held: dict[Any, Array] = {}
    wide: dict[int, Array] = {}
    parts: defaultdict[int, dict[int, Array]] = defaultdict(dict)
    for key, length, load_at, recv, combines, send, store_at, keeps, load_with, store_with in program:
        own = held.pop(key, None)
        if load_at != NOWHERE:
            assert own is None, "a tile that is held is loaded"
            whole, first = source[load_at : load_at + length], load_at
            if load_with is not None:
                assert load_with.is_first == (load_with.at not in wide), "a joint is loaded once"
                own_range = source[load_with.at : load_with.at + load_with.length].copy()
                whole, first = wide.setdefault(load_with.at, own_range), load_with.at
                if load_with.is_last:
                    del wide[load_with.at]
            own = whole[load_at - first :][:length].copy()
        if recv:
            while not rings[rank, recv]:
                yield False
            arrived = rings[rank, recv].popleft()
            assert len(arrived) == length, "another tile comes than the one that is due"
            if combines:
                assert own is not None
                arrived = combine(op, arrived, own) if combines == ARRIVED_FIRST else combine(op, own, arrived)
            own = arrived
            yield True
        assert own is not None
        if send:
            to = wiring[rank, send]
            while len(rings[to]) >= n_slots:
                yield False
            rings[to].append(own.copy())
            yield True
        if store_at != NOWHERE:
            final = own / np.asarray(task_size(wiring), own.dtype) if op == "avg" else own
            if store_with is None:
                result[store_at : store_at + length] = final
            else:
                parts[store_with.at][store_at] = final
                if store_with.is_last:
                    whole = np.concatenate([part for _, part in sorted(parts.pop(store_with.at).items())])
                    assert len(whole) == store_with.length, "a joint has other elements than its place"
                    result[store_with.at : store_with.at + store_with.length] = whole
        if keeps:
            held[key] = own
    assert not [*held, *wide, *parts], "a tile is held that nothing uses"


def task_size(wiring: Wiring) -> int:
    """The ranks of a wiring."""
    return len({rank for rank, _ in wiring}) or 1


def wrong_ranks(module: ModuleType, task: Task, op: str = "sum", **how: Any) -> list[int]:
    """The ranks whose results are not those of the definition, on integers."""
    sources = sources_of(task)
    if op == "prod":
        sources = [np.where(each > 0, 1, -1).astype(each.dtype) for each in sources]
    if op == "avg":
        sources = [each * task.size for each in sources]
    results = carry_out(module, task, sources, op, **how)
    wanted = [task.collective.result_of(sources, task.size, task.root, op, rank) for rank in range(task.size)]
    return [rank for rank, want in enumerate(wanted) if want is not None and not np.array_equal(results[rank], want)]
