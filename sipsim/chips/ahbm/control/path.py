"""Nodes, names and times of the control path: host, IO_CPU (ADR-0036), M_CPUs (ADR-0035) and PEs."""

import hashlib
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import NamedTuple

from sipsim.chips.ahbm.mesh import IO_CPU_NODE
from sipsim.config.schema import IoCpu, MCpu, Resolved
from sipsim.config.schema import Launch as LaunchSection
from sipsim.core.units import ns_to_ps
from sipsim.fabric.graph import Node, Route, RouteGraph

Ps = int
Place = tuple[int, int]
"""PE of a SIP: cube and number."""


def m_cpu(cube: int) -> Node:
    """Return the node of a cube's M_CPU."""
    return Node("m_cpu", cube, 0)


def by_cube(places: Iterable[Place]) -> dict[int, list[int]]:
    """Return the PE numbers of each cube, in the order of ``places``."""
    return {cube: [pe for _, pe in group] for cube, group in groupby(sorted(places), key=lambda place: place[0])}


class Stretch(NamedTuple):
    """Term of the fan-out's bound: head of ``route``, ``messages`` drains of ``nbytes``, ``dispatches`` dispatches."""

    route: Route
    nbytes: int
    messages: int
    dispatches: int


class LaunchPath:
    """Path and times of a launch, derived by every process from sections ``launch``, ``io_cpu`` and ``m_cpu``.

    IO_CPU stamps one start for all cubes of a launch (ADR-0036), ``margin_ps`` after it has taken the launch. Without a
    configured margin, this is an upper bound of the uncontended fan-out, with the slowest edge's drain:

        max over cubes of head(IO_CPU to M_CPU) + n_cubes * drain(cube_bytes)
        + max over cubes of (n_pes * dispatch + max over PEs of head(M_CPU to PE) + n_pes * drain(pe_bytes))

    This assumes that all messages of one sender queue on each edge, so no message arrives later. Limits: the bound
    excludes other traffic and CPUs that are busy with another request; a kernel that either of these delays starts
    late.
    """

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
        """Return the delay in ps of a rank's launches at its host: the configured delay, or a draw from the seed."""
        configured_ns = self.launch.start_skew_ns.get(str(rank))
        if configured_ns is not None:
            return ns_to_ps(configured_ns)
        limit_ps = ns_to_ps(self.launch.max_start_skew_ns)
        if not limit_ps:
            return 0
        drawn = hashlib.sha256(f"start skew {self.launch.start_skew_seed} {rank}".encode()).digest()
        return int.from_bytes(drawn[:8], "big") % (limit_ps + 1)

    def margin_ps(self, places: Sequence[Place]) -> Ps:
        """Return the time from IO_CPU's stamp to the start of the kernels of a launch on these PEs."""
        if self.launch.start_margin_ns is not None:
            return ns_to_ps(self.launch.start_margin_ns)
        return sum(self.stretch_ps(each) for each in self.fan_out(places))

    def fan_out(self, places: Sequence[Place]) -> list[Stretch]:
        """Return the terms of the bound of a launch's fan-out; an empty list for a launch without PEs."""
        cubes = by_cube(places)
        if not cubes:
            return []
        to_cubes = [self._graph.route(IO_CPU_NODE, m_cpu(cube)) for cube in cubes]
        in_cubes = [self._in_cube(cube, pes) for cube, pes in cubes.items()]
        farthest = max(to_cubes, key=Route.head_ps)
        return [Stretch(farthest, self.launch.cube_bytes, len(cubes), 0), max(in_cubes, key=self.stretch_ps)]

    def stretch_ps(self, stretch: Stretch) -> Ps:
        """Return the time of a term of the bound."""
        route, nbytes, messages, dispatches = stretch
        return route.head_ps() + messages * route.drain_ps(nbytes) + dispatches * self.dispatch_ps

    def _in_cube(self, cube: int, pes: Sequence[int]) -> Stretch:
        routes = [self._graph.route(m_cpu(cube), Node("pe", cube, pe)) for pe in pes]
        return Stretch(max(routes, key=Route.head_ps), self.launch.pe_bytes, len(pes), len(pes))


HOST, IO_CPU, M_CPU = "host", "io_cpu", "m_cpu."
"""Components of spans; ``M_CPU`` is the prefix of the names of M_CPUs."""
SKEW, TO_IO_CPU, TAKE, MARGIN, START, END = (
    "start skew",
    "to IO_CPU",
    "launch",
    "start margin",
    "start",
    "end of a launch",
)
TO_CUBE, TO_PE, OF_PE, OF_CUBE = "to M_CPU", "to PE", "answer of PE", "answer of M_CPU"
DISPATCH, GATHER = "dispatch", "gather"
TAKE_COPY, ASK_HOST, TO_DEVICE, FROM_DEVICE, END_OF_COPY = (
    "copy",
    "request to host",
    "write to device",
    "read from device",
    "end of a copy",
)
TAKE_MAP, END_OF_MAP = "map", "end of a map"
"""Names of spans."""


def m_cpu_name(cube: int) -> str:
    """Return the name of a cube's M_CPU in spans."""
    return f"{M_CPU}cube{cube}"


def part_of(component: str, request: str) -> str:
    """Return the component of a span that belongs to a request: a launch has the component's own name."""
    return component if request == TAKE else f"{component}.{request}"
