"""Measures the use of a SIP's parts over stretches of the run: counters at their ends, subtracted."""

from collections.abc import Callable, Iterator, Mapping
from operator import add
from typing import NamedTuple, TypeVar

from sipsim.chips.ahbm.pe.engine import GEMM
from sipsim.core.engine import Engine
from sipsim.fabric.graph import Edge, Node
from sipsim.fabric.links.outages import OutageUse
from sipsim.fabric.transport import EdgeUse
from sipsim.records.recorder import Recorder
from sipsim.records.report import EngineUse, KernelUse, LinkUse, StackUse, TlbUse, Usage

Ps = int
Place = tuple[int, int]
Key = TypeVar("Key")
Counts = TypeVar("Counts")


class PeCounters(NamedTuple):
    """How long the engines of a PE were busy, by their names, and how long kernels ran that have ended."""

    busy_ps: Mapping[str, Ps]
    kernel_ps: Ps

    def plus(self, other: "PeCounters") -> "PeCounters":
        """Both together."""
        return PeCounters(_joined(self.busy_ps, other.busy_ps, add), self.kernel_ps + other.kernel_ps)


class PartCounters(NamedTuple):
    """The counters of parts: of edges, and of what was sent, data and credits, by port.

    ``lookups``: hits and misses of TLBs, by (cube, PE). ``pes``: of the PEs that multiply, by their names.
    ``outages``: of the links that leave, in one order.
    """

    edges: Mapping[Edge, EdgeUse] = {}
    sent_bytes: Mapping[str, tuple[int, int]] = {}
    lookups: Mapping[Place, tuple[int, int]] = {}
    pes: Mapping[str, PeCounters] = {}
    outages: tuple[OutageUse, ...] = ()

    def plus(self, other: "PartCounters") -> "PartCounters":
        """Both together."""
        outages = zip(self.outages, other.outages, strict=True) if self.outages else ()
        return PartCounters(
            _joined(self.edges, other.edges, lambda one, more: EdgeUse(*map(add, one, more))),
            _joined(self.sent_bytes, other.sent_bytes, _pairs_sum),
            _joined(self.lookups, other.lookups, _pairs_sum),
            _joined(self.pes, other.pes, PeCounters.plus),
            tuple(one.plus(more) for one, more in outages) or other.outages,
        )


class _Counters(NamedTuple):
    """All counters at ``now_ps``: of the kernels of rows, and of parts since the start of the run.

    ``commands_ps``, ``peak_ps``: of composite commands, see :class:`~sipsim.records.recorder.Recorder`.
    """

    now_ps: Ps
    of_rows: KernelUse
    parts: PartCounters
    commands_ps: Mapping[str, Ps]
    peak_ps: Ps


_NEW_PE = PeCounters({}, 0)
_NOTHING = _Counters(0, KernelUse(), PartCounters(), {}, 0)


class UsageMeter:
    """The counters of one SIP. ``link_names``: of the links that leave it, by port.

    What is sent is counted by time, whoever sends; kernels are counted by the launch that they belong to, at its end.
    ``parts``: reads what the parts have counted since the last row start.
    """

    def __init__(
        self, engine: Engine, link_names: Mapping[str, str], recorder: Recorder, parts: Callable[[], PartCounters]
    ) -> None:
        self._engine = engine
        self._link_names = link_names
        self._kernels = self._of_rows = KernelUse()
        self._recorder = recorder
        self._parts = parts
        self._before = PartCounters()
        self._rows: list[Usage] = []
        self._iterations: int | None = None
        self._begin = _NOTHING

    def begin_row(self) -> None:
        """The parts count from 0 from now on; those that have counted so far are read for the last time."""
        self._before = self.so_far_of_parts()

    def so_far_of_parts(self) -> PartCounters:
        """The counters of the parts since the start of the run."""
        return self._before.plus(self._parts())

    def note_launch(self, use: KernelUse, is_of_row: bool) -> None:
        """A launch has ended; ``is_of_row``: it belongs to the row whose stretch this is, and is none beside it."""
        self._kernels = self._kernels.plus(use)
        if is_of_row:
            self._of_rows = self._of_rows.plus(use)

    def mark(self, iterations: int) -> None:
        """A stretch with so many equal iterations of a row begins here, and the one before ends; 0: of no row."""
        if not iterations and self._iterations == 0:
            return
        now = self._read()
        if self._iterations:
            self._rows.append(self._between(self._iterations, self._begin, now))
        self._iterations, self._begin = iterations, now

    def so_far(self) -> Usage | None:
        """The present stretch up to now, if it is of a row."""
        return self._between(self._iterations, self._begin, self._read()) if self._iterations else None

    def measured(self) -> tuple[Usage, ...]:
        """Each stretch of a row, up to now; without any, the whole run, with 0 iterations."""
        present = self.so_far()
        rows = (*self._rows, *([] if present is None else [present]))
        return rows or (self._between(0, _NOTHING, self._read()._replace(of_rows=self._kernels)),)

    def _read(self) -> _Counters:
        recorder, parts = self._recorder, self.so_far_of_parts()
        return _Counters(self._engine.now_ps, self._of_rows, parts, dict(recorder.composite_ps), recorder.peak_ps)

    def _between(self, iterations: int, begin: _Counters, end: _Counters) -> Usage:
        none, was, now = EdgeUse(0, 0, 0), begin.parts, end.parts
        edges = {
            edge: EdgeUse(*(after - before for after, before in zip(use, was.edges.get(edge, none), strict=True)))
            for edge, use in now.edges.items()
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
                _link_use(name, links.get(letter, none), was.sent_bytes.get(letter, (0, 0)), now.sent_bytes[letter])
                for letter, name in self._link_names.items()
            ),
            busiest,
            busy_ps,
            tuple(_tlb_uses(was.lookups, now.lookups)),
            _engine_use(begin, end),
            _stack_use(edges),
        )


def _joined(
    one: Mapping[Key, Counts], other: Mapping[Key, Counts], plus: Callable[[Counts, Counts], Counts]
) -> dict[Key, Counts]:
    """For each key the sum of both mappings' values."""
    found = dict(one)
    for key, more in other.items():
        known = found.get(key)
        found[key] = more if known is None else plus(known, more)
    return found


def _pairs_sum(one: tuple[int, int], other: tuple[int, int]) -> tuple[int, int]:
    return one[0] + other[0], one[1] + other[1]


def _engine_use(before: _Counters, after: _Counters) -> EngineUse | None:
    """Of the PEs whose PE_GEMM worked meanwhile."""
    commands_ps = {name: ps - before.commands_ps.get(name, 0) for name, ps in after.commands_ps.items()}
    busy_ps: dict[str, Ps] = {}
    pes = kernel_ps = 0
    for pe, now in after.parts.pes.items():
        known = before.parts.pes.get(pe, _NEW_PE)
        if now.busy_ps[GEMM] > known.busy_ps.get(GEMM, 0):
            pes += 1
            kernel_ps += now.kernel_ps - known.kernel_ps
            for name, ps in now.busy_ps.items():
                busy_ps[name] = busy_ps.get(name, 0) + ps - known.busy_ps.get(name, 0)
    return EngineUse(pes, kernel_ps, busy_ps, commands_ps, after.peak_ps - before.peak_ps) if pes else None


def _stack_use(edges: Mapping[Edge, EdgeUse]) -> StackUse | None:
    """The use of the HBM that moved most bytes; of equal cubes the first."""
    moved: dict[int, int] = {}
    slices: dict[int, set[Node]] = {}
    for edge, use in edges.items():
        for node in () if edge.memory else (edge.src, edge.dst):
            if node.kind == "hbm" and use.nbytes:
                moved[node.cube] = moved.get(node.cube, 0) + use.nbytes
                slices.setdefault(node.cube, set()).add(node)
    if not moved:
        return None
    cube = min(moved, key=lambda each: (-moved[each], each))
    return StackUse(f"cube{cube}", moved[cube], len(slices[cube]))


def _tlb_uses(before: Mapping[Place, tuple[int, int]], after: Mapping[Place, tuple[int, int]]) -> Iterator[TlbUse]:
    """Of the PEs that looked something up meanwhile."""
    for (cube, pe), (hits, misses) in sorted(after.items()):
        hits_before, misses_before = before.get((cube, pe), (0, 0))
        if (hits, misses) != (hits_before, misses_before):
            yield TlbUse(f"cube{cube}.pe{pe}", hits - hits_before, misses - misses_before)


def _link_use(name: str, use: EdgeUse, before: tuple[int, int], after: tuple[int, int]) -> LinkUse:
    payload_bytes, credit_bytes = after[0] - before[0], after[1] - before[1]
    return LinkUse(name, use.transfers, payload_bytes, credit_bytes, use.nbytes, use.busy_ps)
