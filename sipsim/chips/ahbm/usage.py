"""Measures the use of a SIP's parts over stretches of the run: counters at their ends, subtracted."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, TypeVar

from sipsim.chips.ahbm.pe.engine import GEMM
from sipsim.core.engine import Engine
from sipsim.fabric.graph import Edge, Node
from sipsim.fabric.links.outages import OutageUse
from sipsim.fabric.transport import EdgeUse
from sipsim.records.recorder import Recorder
from sipsim.records.report import EngineUse, KernelUse, LinkUse, StackUse, TlbUse, Usage

Ps = int
Place = tuple[int, int]
Counts = TypeVar("Counts")


class PeCounters(NamedTuple):
    """How long the engines of a PE were busy, by their names, and how long kernels ran that have ended."""

    busy_ps: Mapping[str, Ps]
    kernel_ps: Ps


class PartCounters(NamedTuple):
    """The counters of parts: of edges, and of what was sent, data and credits, by port.

    ``lookups``: hits and misses of TLBs, by (cube, PE). ``pes``: of the PEs that multiply, by their names.
    ``outages``: of the links that leave, in one order; none in a part of the run.
    """

    edges: Mapping[Edge, EdgeUse] = {}
    sent_bytes: Mapping[str, tuple[int, int]] = {}
    lookups: Mapping[Place, tuple[int, int]] = {}
    pes: Mapping[str, PeCounters] = {}
    outages: tuple[OutageUse, ...] = ()


class _Counters(NamedTuple):
    """All counters at ``now_ps``: of the kernels of rows, and of parts since the start of the run.

    ``commands_ps``, ``peak_ps``: of composite commands, see :class:`~sipsim.records.recorder.Recorder`.
    """

    now_ps: Ps
    of_rows: KernelUse
    parts: PartCounters
    commands_ps: Mapping[str, Ps]
    peak_ps: Ps


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
        return combined(self._before, self._parts())

    def note_launch(self, use: KernelUse, is_of_row: bool) -> None:
        """A launch has ended; ``is_of_row``: it belongs to the row whose stretch this is, and is none beside it."""
        self._kernels = combined(self._kernels, use)
        if is_of_row:
            self._of_rows = combined(self._of_rows, use)

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
        recorder, parts = self._recorder, self.so_far_of_parts()._replace(outages=())
        return _Counters(self._engine.now_ps, self._of_rows, parts, dict(recorder.composite_ps), recorder.peak_ps)

    def _between(self, iterations: int, begin: _Counters, end: _Counters) -> Usage:
        used = combined(end, begin, -1)
        edges, sent = used.parts.edges, used.parts.sent_bytes
        links = {str(edge.src.place): use for edge, use in edges.items() if edge.is_link}
        inside = [(use.busy_ps, edge.name) for edge, use in edges.items() if not edge.is_link]
        busy_ps, busiest = max(inside, default=(0, ""))
        return Usage(
            begin.now_ps,
            end.now_ps,
            iterations,
            used.of_rows,
            tuple(
                _link_use(name, links.get(letter, EdgeUse(0, 0, 0)), *sent[letter])
                for letter, name in self._link_names.items()
            ),
            busiest,
            busy_ps,
            tuple(_tlb_uses(used.parts.lookups)),
            _engine_use(used),
            _stack_use(edges),
        )


def combined(one: Counts, other: Counts, sign: int = 1) -> Counts:
    """The sum of equal trees of counters: mappings by their keys, tuples, and numbers; an empty one is all zeros.

    ``sign`` -1: what ``one`` has more than ``other``, an earlier state of it.
    """
    mine: Any = one
    its: Any = other
    total: Any
    if not its or (not mine and sign > 0):
        total = mine or its
    elif isinstance(mine, Mapping):
        total = {key: combined(value, its[key], sign) if key in its else value for key, value in mine.items()}
        total = {**its, **total} if sign > 0 else total
    elif isinstance(mine, tuple):
        total = [combined(*pair, sign) for pair in zip(mine, its, strict=True)]
        total = type(mine)(total) if type(mine) is tuple else type(mine)(*total)
    else:
        total = mine.plus(its) if isinstance(mine, OutageUse) else mine + sign * its
    found: Counts = total
    return found


def _engine_use(used: _Counters) -> EngineUse | None:
    """Of the PEs whose PE_GEMM worked meanwhile."""
    pes = [pe for pe in used.parts.pes.values() if pe.busy_ps[GEMM]]
    busy_ps: dict[str, Ps] = {}
    for pe in pes:
        busy_ps = combined(busy_ps, dict(pe.busy_ps))
    kernel_ps = sum(pe.kernel_ps for pe in pes)
    return EngineUse(len(pes), kernel_ps, busy_ps, dict(used.commands_ps), used.peak_ps) if pes else None


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


def _tlb_uses(lookups: Mapping[Place, tuple[int, int]]) -> Iterator[TlbUse]:
    """Of the PEs that looked something up meanwhile."""
    for (cube, pe), found in sorted(lookups.items()):
        if any(found):
            yield TlbUse(f"cube{cube}.pe{pe}", *found)


def _link_use(name: str, use: EdgeUse, payload_bytes: int, credit_bytes: int) -> LinkUse:
    return LinkUse(name, use.transfers, payload_bytes, credit_bytes, use.nbytes, use.busy_ps)
