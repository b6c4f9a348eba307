"""Use of a SIP's parts per stretch of the run, as differences of counters."""

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from sipsim.chips.ahbm.pe.engine import GEMM
from sipsim.core.engine import Engine
from sipsim.fabric.graph import Edge, Node
from sipsim.fabric.links.outages import OutageUse
from sipsim.fabric.transport import EdgeUse
from sipsim.records.recorder import Recorder
from sipsim.records.report import EngineUse, KernelUse, LinkUse, StackUse, TlbUse, Usage, combined

Ps = int
Place = tuple[int, int]


class PeCounters(NamedTuple):
    """Busy time of each engine of a PE, by engine name, and total run time of the PE's ended kernels."""

    busy_ps: Mapping[str, Ps]
    kernel_ps: Ps


class PartCounters(NamedTuple):
    """Counters of a SIP's parts. ``edges``: use of each edge. ``sent_bytes``: bytes of data and of credits by port.

    ``lookups``: hits and misses of TLBs by (cube, PE). ``pes``: counters by PE name, for PEs whose PE_GEMM has worked.
    ``outages``: use of outages per outgoing link, in a fixed order; empty for a stretch of the run.
    """

    edges: Mapping[Edge, EdgeUse] = {}
    sent_bytes: Mapping[str, tuple[int, int]] = {}
    lookups: Mapping[Place, tuple[int, int]] = {}
    pes: Mapping[str, PeCounters] = {}
    outages: tuple[OutageUse, ...] = ()


class _Counters(NamedTuple):
    """All counters at ``now_ps`` since the start of the run: ``of_rows`` of launches in rows, ``parts`` of parts.

    ``commands_ps``, ``peak_ps``: sums over composite commands (:class:`~sipsim.records.recorder.Recorder`).
    """

    now_ps: Ps
    of_rows: KernelUse
    parts: PartCounters
    commands_ps: Mapping[str, Ps]
    peak_ps: Ps


_NOTHING = _Counters(0, KernelUse(), PartCounters(), {}, 0)


class UsageMeter:
    """Meter that counts the use of one SIP per stretch. ``link_names``: names of the SIP's outgoing links, by port.

    Sent bytes count in the stretch in which any sender sends them; kernels count in the stretch in which their launch
    ends. ``parts()`` returns the counters of the parts since the last row start.
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
        """Save the counters of the current parts: new parts replace them and count from 0."""
        self._before = self.so_far_of_parts()

    def so_far_of_parts(self) -> PartCounters:
        """Return the counters of the parts since the start of the run."""
        return combined(self._before, self._parts())

    def note_launch(self, use: KernelUse, counts_for_row: bool) -> None:
        """Count an ended launch; ``counts_for_row``: whether the launch belongs to the row of the current stretch."""
        self._kernels = combined(self._kernels, use)
        if counts_for_row:
            self._of_rows = combined(self._of_rows, use)

    def mark(self, iterations: int) -> None:
        """End the current stretch and begin another: ``iterations`` equal iterations of a row, or 0 if outside rows."""
        if not iterations and self._iterations == 0:
            return
        now = self._read()
        if self._iterations:
            self._rows.append(self._between(self._iterations, self._begin, now))
        self._iterations, self._begin = iterations, now

    def so_far(self) -> Usage | None:
        """Return the use in the current stretch up to now; None if the stretch belongs to no row."""
        return self._between(self._iterations, self._begin, self._read()) if self._iterations else None

    def measured(self) -> tuple[Usage, ...]:
        """Return the use per stretch of a row up to now; without rows, the use of the whole run, with 0 iterations."""
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


def _engine_use(used: _Counters) -> EngineUse | None:
    """Return the use of engines of the PEs whose PE_GEMM worked in the stretch; None if no PE_GEMM worked."""
    pes = [pe for pe in used.parts.pes.values() if pe.busy_ps[GEMM]]
    busy_ps: dict[str, Ps] = {}
    for pe in pes:
        busy_ps = combined(busy_ps, dict(pe.busy_ps))
    kernel_ps = sum(pe.kernel_ps for pe in pes)
    return EngineUse(len(pes), kernel_ps, busy_ps, dict(used.commands_ps), used.peak_ps) if pes else None


def _stack_use(edges: Mapping[Edge, EdgeUse]) -> StackUse | None:
    """Return the use of one cube's HBM: of the cube that moved the most bytes, the first of equal cubes."""
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
    """Yield the use of each TLB with lookups in the stretch."""
    for (cube, pe), found in sorted(lookups.items()):
        if any(found):
            yield TlbUse(f"cube{cube}.pe{pe}", *found)


def _link_use(name: str, use: EdgeUse, payload_bytes: int, credit_bytes: int) -> LinkUse:
    return LinkUse(name, use.transfers, payload_bytes, credit_bytes, use.nbytes, use.busy_ps)
