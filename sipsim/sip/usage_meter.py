"""Measures the use of a SIP's parts over stretches of the run: counters at their ends, subtracted."""

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from sipsim.engine import Engine
from sipsim.links.port import Port
from sipsim.noc.edge_use import EdgeUse
from sipsim.noc.graph import Edge
from sipsim.noc.transport import Transport
from sipsim.pe.unit import GEMM
from sipsim.record.launches import KernelUse
from sipsim.record.usage import EngineUse, LinkUse, TlbUse, Usage

Ps = int


class PeCounters(NamedTuple):
    """How long the engines of a PE were busy, by their names, and how long kernels ran that have ended."""

    busy_ps: Mapping[str, Ps]
    kernel_ps: Ps


class EngineCounters(NamedTuple):
    """Of the PEs that multiply, by their names; the time of their commands by parts, and at the peak of the arrays."""

    pes: Mapping[str, PeCounters]
    commands_ps: Mapping[str, Ps]
    peak_ps: Ps


class _Counters(NamedTuple):
    """All counters at ``now_ps``: of the kernels of rows, of edges, and of what was sent, data and credits, by port.

    ``lookups``: hits and misses of TLBs, by PE.
    """

    now_ps: Ps
    of_rows: KernelUse
    edges: dict[Edge, EdgeUse]
    sent_bytes: dict[str, tuple[int, int]]
    lookups: dict[str, tuple[int, int]]
    engines: EngineCounters


_IDLE = EngineCounters({}, {}, 0)
_NEW_PE = PeCounters({}, 0)
_NOTHING = _Counters(0, KernelUse(), {}, {}, {}, _IDLE)


class UsageMeter:
    """The counters of one SIP. ``link_names``: of the links that leave by its ``ports``.

    What is sent is counted by time, whoever sends; kernels are counted by the launch that they belong to, at its end.
    ``lookups``: reads the hits and misses of each TLB, by PE. ``engines``: reads the counters of engines.
    """

    def __init__(
        self,
        engine: Engine,
        fabric: Transport,
        link_names: Mapping[str, str],
        ports: Mapping[str, Port],
        lookups: Callable[[], dict[str, tuple[int, int]]] = dict,
        engines: Callable[[], EngineCounters] = lambda: _IDLE,
    ) -> None:
        self._engine = engine
        self._fabric = fabric
        self._link_names = link_names
        self._ports = ports
        self._kernels = self._of_rows = KernelUse()
        self._lookups = lookups
        self._engines = engines
        self._marks: list[tuple[int, _Counters]] = []

    def note_launch(self, use: KernelUse, is_of_row: bool) -> None:
        """A launch has ended; ``is_of_row``: it belongs to the row whose stretch this is, and is none beside it."""
        self._kernels = self._kernels.plus(use)
        if is_of_row:
            self._of_rows = self._of_rows.plus(use)

    def mark(self, iterations: int) -> None:
        """A stretch with so many equal iterations of a row begins here, and the one before ends; 0: of no row."""
        if iterations or not self._marks or self._marks[-1][0]:
            self._marks.append((iterations, self._read()))

    def so_far(self) -> Usage | None:
        """The present stretch up to now, if it is of a row."""
        if not self._marks or not self._marks[-1][0]:
            return None
        return self._between(*self._marks[-1], self._read())

    def measured(self) -> tuple[Usage, ...]:
        """Each stretch of a row, up to now; without any, the whole run, with 0 iterations."""
        rows = [(at, iterations) for at, (iterations, _) in enumerate(self._marks) if iterations]
        counters = [*(found for _, found in self._marks), self._read()]
        if not rows:
            return (self._between(0, _NOTHING, counters[-1]._replace(of_rows=self._kernels)),)
        return tuple(self._between(iterations, counters[at], counters[at + 1]) for at, iterations in rows)

    def _read(self) -> _Counters:
        payloads = {letter: (port.bytes_sent, port.credit_bytes) for letter, port in self._ports.items()}
        return _Counters(
            self._engine.now_ps, self._of_rows, self._fabric.use(), payloads, self._lookups(), self._engines()
        )

    def _between(self, iterations: int, begin: _Counters, end: _Counters) -> Usage:
        none = EdgeUse(0, 0, 0)
        edges = {
            edge: EdgeUse(*(after - before for after, before in zip(use, begin.edges.get(edge, none), strict=True)))
            for edge, use in end.edges.items()
        }
        links = {str(edge.src.place): use for edge, use in edges.items() if edge.is_link}
        inside = [(use.busy_ps, edge.name) for edge, use in edges.items() if not edge.is_link]
        busy_ps, busiest = max(inside, default=(0, ""))
        kernels = end.of_rows.since(begin.of_rows)
        return Usage(
            begin.now_ps,
            end.now_ps,
            iterations,
            kernels.kernels,
            kernels.kernel_ps,
            kernels.launch_ps,
            dict(kernels.waited_ps),
            tuple(
                _link_use(name, links.get(letter, none), begin.sent_bytes.get(letter, (0, 0)), end.sent_bytes[letter])
                for letter, name in self._link_names.items()
            ),
            busiest,
            busy_ps,
            tuple(_tlb_uses(begin.lookups, end.lookups)),
            _engine_use(begin.engines, end.engines),
        )


def _engine_use(before: EngineCounters, after: EngineCounters) -> EngineUse | None:
    """Of the PEs whose PE_GEMM worked meanwhile."""
    commands_ps = {name: ps - before.commands_ps.get(name, 0) for name, ps in after.commands_ps.items()}
    busy_ps: dict[str, Ps] = {}
    pes = kernel_ps = 0
    for pe, now in after.pes.items():
        known = before.pes.get(pe, _NEW_PE)
        if now.busy_ps[GEMM] > known.busy_ps.get(GEMM, 0):
            pes += 1
            kernel_ps += now.kernel_ps - known.kernel_ps
            for name, ps in now.busy_ps.items():
                busy_ps[name] = busy_ps.get(name, 0) + ps - known.busy_ps.get(name, 0)
    return EngineUse(pes, kernel_ps, busy_ps, commands_ps, after.peak_ps - before.peak_ps) if pes else None


def _tlb_uses(before: dict[str, tuple[int, int]], after: dict[str, tuple[int, int]]) -> Iterator[TlbUse]:
    """Of the PEs that looked something up meanwhile."""
    for pe, (hits, misses) in after.items():
        hits_before, misses_before = before.get(pe, (0, 0))
        if (hits, misses) != (hits_before, misses_before):
            yield TlbUse(pe, hits - hits_before, misses - misses_before)


def _link_use(name: str, use: EdgeUse, before: tuple[int, int], after: tuple[int, int]) -> LinkUse:
    payload_bytes, credit_bytes = after[0] - before[0], after[1] - before[1]
    return LinkUse(name, use.transfers, payload_bytes, credit_bytes, use.nbytes, use.busy_ps)
