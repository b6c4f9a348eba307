"""The path of a launch, as every process derives it: routes between IO_CPU, M_CPUs and PEs, times, the margin.

IO_CPU stamps one start for all cubes of a launch (ADR-0036), ``margin_ps`` after it has taken the launch. Without a
configured margin that is a bound of the fan-out where nothing else is there:

    max over cubes of head(IO_CPU to M_CPU) + n_cubes * drain(cube_bytes)
    + max over cubes of (n_pes * dispatch + max over PEs of head(M_CPU to PE) + n_pes * drain(pe_bytes))

with the slowest edge's drain. The messages of one sender are at most one behind the other on each edge, so none comes
later. Limits: other traffic, and CPUs that are busy with another launch, are in no bound; what they delay starts late.
"""

import hashlib
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import NamedTuple

from sipsim.config.schema.components import IoCpu, MCpu
from sipsim.config.schema.components import Launch as LaunchSection
from sipsim.config.schema.model import Resolved
from sipsim.core.units import ns_to_ps
from sipsim.fabric.graph.graph import Node, Route, RouteGraph

Ps = int
Place = tuple[int, int]
"""A PE of a SIP: its cube, and its number."""
IO_CPU_NODE = Node("io_cpu", -1, 0)


def m_cpu(cube: int) -> Node:
    """The node of a cube's M_CPU."""
    return Node("m_cpu", cube, 0)


def by_cube(places: Iterable[Place]) -> dict[int, list[int]]:
    """The PEs of each cube, in order."""
    return {cube: [pe for _, pe in some] for cube, some in groupby(sorted(places), key=lambda place: place[0])}


class Stretch(NamedTuple):
    """A part of the fan-out's bound: the longest head, and as many drains and dispatches as there are messages."""

    route: Route
    nbytes: int
    messages: int
    dispatches: int


class LaunchPath:
    """Costs and routes of a config with the sections ``launch``, ``io_cpu`` and ``m_cpu``."""

    def __init__(self, resolved: Resolved, graph: RouteGraph) -> None:
        components = resolved.components
        launch, io_cpu, m_cpu_ = components.launch, components.io_cpu, components.m_cpu
        assert launch is not None
        assert io_cpu is not None
        assert m_cpu_ is not None
        self._graph = graph
        self.launch: LaunchSection = launch
        self.io_cpu: IoCpu = io_cpu
        self.m_cpu: MCpu = m_cpu_
        self.host_ps = ns_to_ps(launch.host_latency_ns)
        self.launch_ps = ns_to_ps(io_cpu.launch_ns)
        self.io_gather_ps = ns_to_ps(io_cpu.gather_ns)
        self.dispatch_ps = ns_to_ps(m_cpu_.dispatch_ns)
        self.m_gather_ps = ns_to_ps(m_cpu_.gather_ns)

    def skew_ps(self, rank: int) -> Ps:
        """How much later the launches of a rank leave its host: as given, or drawn from the seed."""
        given = self.launch.start_skew_ns.get(str(rank))
        if given is not None:
            return ns_to_ps(given)
        most_ps = ns_to_ps(self.launch.max_start_skew_ns)
        if not most_ps:
            return 0
        drawn = hashlib.sha256(f"start skew {self.launch.start_skew_seed} {rank}".encode()).digest()
        return int.from_bytes(drawn[:8], "big") % (most_ps + 1)

    def margin_ps(self, places: Sequence[Place]) -> Ps:
        """From IO_CPU's stamp to the start of the kernels of a launch on these PEs of a SIP."""
        if self.launch.start_margin_ns is not None:
            return ns_to_ps(self.launch.start_margin_ns)
        return sum(self.stretch_ps(each) for each in self.fan_out(places))

    def fan_out(self, places: Sequence[Place]) -> list[Stretch]:
        """The bound of a launch's fan-out; nothing for a launch without PEs."""
        cubes = by_cube(places)
        if not cubes:
            return []
        to_cubes = [self._graph.route(IO_CPU_NODE, m_cpu(cube)) for cube in cubes]
        in_cubes = [self._in_cube(cube, pes) for cube, pes in cubes.items()]
        farthest = max(to_cubes, key=Route.head_ps)
        return [Stretch(farthest, self.launch.cube_bytes, len(cubes), 0), max(in_cubes, key=self.stretch_ps)]

    def stretch_ps(self, stretch: Stretch) -> Ps:
        """The time of a part of the bound."""
        route, nbytes, messages, dispatches = stretch
        return route.head_ps() + messages * route.drain_ps(nbytes) + dispatches * self.dispatch_ps

    def gather(self, place: Place) -> tuple[Route, Route]:
        """The ways of a PE's answer to its M_CPU, and of this one's to IO_CPU."""
        cube, pe = place
        return self._graph.route(Node("pe", cube, pe), m_cpu(cube)), self._graph.route(m_cpu(cube), IO_CPU_NODE)

    def _in_cube(self, cube: int, pes: Sequence[int]) -> Stretch:
        routes = [self._graph.route(m_cpu(cube), Node("pe", cube, pe)) for pe in pes]
        return Stretch(max(routes, key=Route.head_ps), self.launch.pe_bytes, len(pes), len(pes))
