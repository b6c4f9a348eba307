"""Measures the use of a SIP's parts over stretches of the run: counters at their ends, subtracted."""

from collections.abc import Mapping
from typing import NamedTuple

from sipsim.engine import Engine
from sipsim.links.port import Port
from sipsim.noc.fabric import EdgeUse, Fabric
from sipsim.noc.graph import Edge
from sipsim.record.recorder import Recorder
from sipsim.record.usage import TL_WORDS, LinkUse, Usage

Ps = int


class _Counters(NamedTuple):
    """All counters at ``now_ps``. ``sent_bytes``: of data and of credits, by port."""

    now_ps: Ps
    kernels: int
    kernel_ps: Ps
    launch_ps: Ps
    waited_ps: dict[str, Ps]
    edges: dict[Edge, EdgeUse]
    sent_bytes: dict[str, tuple[int, int]]


class UsageMeter:
    """The counters of one SIP. ``link_names``: of the links that leave by its ``ports``."""

    def __init__(
        self,
        engine: Engine,
        fabric: Fabric,
        recorder: Recorder,
        link_names: Mapping[str, str],
        ports: Mapping[str, Port],
    ) -> None:
        self._engine = engine
        self._fabric = fabric
        self._recorder = recorder
        self._link_names = link_names
        self._ports = ports
        self._kernels = 0
        self._kernel_ps: Ps = 0
        self._launch_ps: Ps = 0
        self._marks: list[tuple[int, _Counters]] = []

    def note_kernel(self, start_ps: Ps) -> None:
        """A kernel that started then has ended."""
        self._kernels += 1
        self._kernel_ps += self._engine.now_ps - start_ps

    def note_launch(self, kernels: int, start_ps: Ps) -> None:
        """The last kernel of a launch has ended."""
        self._launch_ps += kernels * (self._engine.now_ps - start_ps)

    def mark(self, iterations: int) -> None:
        """A stretch with so many equal iterations of a row begins here, and the one before ends; 0: of no row."""
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
            return (self._between(0, _Counters(0, 0, 0, 0, {}, {}, {}), counters[-1]),)
        return tuple(self._between(iterations, counters[at], counters[at + 1]) for at, iterations in rows)

    def _read(self) -> _Counters:
        payloads = {letter: (port.bytes_sent, port.credit_bytes) for letter, port in self._ports.items()}
        now_ps, waited_ps = self._engine.now_ps, dict(self._recorder.waited_ps)
        return _Counters(
            now_ps, self._kernels, self._kernel_ps, self._launch_ps, waited_ps, self._fabric.use(), payloads
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
        return Usage(
            begin.now_ps,
            end.now_ps,
            iterations,
            end.kernels - begin.kernels,
            end.kernel_ps - begin.kernel_ps,
            end.launch_ps - begin.launch_ps,
            {TL_WORDS.get(name, name): ps - begin.waited_ps.get(name, 0) for name, ps in end.waited_ps.items()},
            tuple(
                _link_use(name, links.get(letter, none), begin.sent_bytes.get(letter, (0, 0)), end.sent_bytes[letter])
                for letter, name in self._link_names.items()
            ),
            busiest,
            busy_ps,
        )


def _link_use(name: str, use: EdgeUse, before: tuple[int, int], after: tuple[int, int]) -> LinkUse:
    payload_bytes, credit_bytes = after[0] - before[0], after[1] - before[1]
    return LinkUse(name, use.transfers, payload_bytes, credit_bytes, use.nbytes, use.busy_ps)
