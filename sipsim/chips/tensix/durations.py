"""Durations of kernels, programs and operations of one chip, for the table, the result files, op log and trace."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from sipsim.chips.tensix.noc import Core
from sipsim.collectives.reduction import NO_OP
from sipsim.collectives.semantics import COLLECTIVES
from sipsim.core.engine import Engine
from sipsim.records.report import MOST_LAUNCHES, PROGRAM, KernelUse, LaunchRecord, LinkUse, RunRecord, Usage, combined

Ps = int
BEFORE_START = "launch"
"""Name, among the kinds of waits, of the time between the start of a program and the start of a kernel."""
PROGRAM_GROUPS = 2**33
"""First group number of programs: programs of chip ``rank`` are in group ``PROGRAM_GROUPS + rank``. All groups of
fabrics have smaller numbers."""
MOST_TILES = 4
"""The most tiles that a text names."""


class KernelTimes(NamedTuple):
    """A kernel that has ended: function name, tile, processor, start and end. ``used_ps``: time by kind of wait."""

    name: str
    core: Core
    processor: int
    start_ps: Ps
    end_ps: Ps
    used_ps: Mapping[str, Ps]


class OperationFacts(NamedTuple):
    """Facts of an operation for its record, as in :class:`~sipsim.records.report.RunRecord`. ``chips``: the chips of
    its fabric, in the fabric's order.
    """

    collective: str
    algorithm: str
    dtype: str
    op: str
    elements: int
    nbytes: int
    group: int
    call: int
    chips: tuple[int, ...]


@dataclass(eq=False)
class Operation:
    """Row of results of one chip in the making: all programs of an operation, which sets ``facts`` when it has enqueued
    them, or one program of a script. ``unfinished``: number of programs that have not ended. ``run``: row number;
    None if no kernel of the row has started. ``links``: the use of the chip's links at ``start_ps``.
    """

    facts: OperationFacts | None = None
    unfinished: int = 0
    run: int | None = None
    start_ps: Ps = 0
    links: tuple[LinkUse, ...] = ()
    ended: list[KernelTimes] = field(default_factory=list)
    kernel_ps: Ps = 0


@dataclass(eq=False)
class ProgramTimes:
    """A program that was started at ``start_ps``. ``kernels``: function names of its kernels, without servers.
    ``ended``: kernels of these that have ended.
    """

    operation: Operation
    kernels: tuple[str, ...]
    start_ps: Ps = 0
    ended: list[KernelTimes] = field(default_factory=list)


class Durations:
    """Durations of one chip. ``links()``: the use of its links since the start of the run.

    Programs of a chip run one after another, and so do rows: a row counts the traffic of the chip's links from its
    start to its end, including packets of other chips that its routers forward; traffic between rows is in no row.
    ``runs``: the records of the rows that have ended. ``records``: the first ``MOST_LAUNCHES`` launches, where a launch
    is all kernels of a program with the same function. ``launches``: number of launches. ``total``: sums over all
    kernels. ``on_kernel``, ``on_record``: called with each ended kernel and the number of its row, and with the record
    of each row at its end.
    """

    def __init__(
        self,
        rank: int,
        engine: Engine,
        links: Callable[[], tuple[LinkUse, ...]],
        on_kernel: Callable[[KernelTimes, int | None], None],
        on_record: Callable[[RunRecord], None],
    ) -> None:
        self._rank = rank
        self._engine = engine
        self._links = links
        self._on_kernel = on_kernel
        self._on_record = on_record
        self._rows = 0
        self._programs = 0
        self.runs: list[RunRecord] = []
        self.launches = 0
        self.records: list[LaunchRecord] = []
        self.total = KernelUse()

    def started(self, program: ProgramTimes) -> None:
        """Note that a program starts now; one without kernels, or with servers alone, ends now."""
        program.start_ps = self._engine.now_ps
        if program.kernels:
            self._begin(program.operation)
        else:
            self._end(program)

    def kernel_ended(self, program: ProgramTimes, kernel: KernelTimes, is_server: bool) -> None:
        """Note a kernel that ends now."""
        self._on_kernel(kernel, program.operation.run)
        if is_server:
            return
        program.ended.append(kernel)
        if len(program.ended) == len(program.kernels):
            self._end(program)

    def close(self, operation: Operation, facts: OperationFacts) -> None:
        """Set the facts of an operation, all of whose programs are enqueued."""
        operation.facts = facts
        self._check(operation)

    def _begin(self, operation: Operation) -> None:
        """Begin the row of an operation now, unless the row has begun."""
        if operation.run is None:
            operation.run, operation.start_ps, operation.links = self._rows, self._engine.now_ps, self._links()
            self._rows += 1

    def _end(self, program: ProgramTimes) -> None:
        operation, now_ps = program.operation, self._engine.now_ps
        operation.unfinished -= 1
        for name in dict.fromkeys(program.kernels):
            self._record(program, [kernel for kernel in program.ended if kernel.name == name])
        operation.ended += program.ended
        operation.kernel_ps += len(program.ended) * (now_ps - program.start_ps)
        if operation.facts is None and operation.run is not None and not operation.unfinished:
            operation.facts = self._facts_of_program(program)
        self._check(operation)

    def _record(self, program: ProgramTimes, kernels: list[KernelTimes]) -> None:
        """Record a launch: the kernels of a program with the same function."""
        use = _use_of(program.start_ps, kernels, len(kernels) * (self._engine.now_ps - program.start_ps))
        self.total = combined(self.total, use)
        self.launches += 1
        if len(self.records) < MOST_LAUNCHES:
            span_ps = min(each.start_ps for each in kernels), max(each.end_ps for each in kernels)
            busy_ps = {name: ps for name, ps in use.waited_ps.items() if name != BEFORE_START}
            tiles = tiles_text(each.core for each in kernels)
            name, run = kernels[0].name, program.operation.run
            at = program.start_ps, span_ps[1], span_ps
            self.records.append(LaunchRecord(name, run, *at, None, 0, tiles, len(kernels), busy_ps))

    def _facts_of_program(self, program: ProgramTimes) -> OperationFacts:
        names = "+".join(dict.fromkeys(program.kernels))
        self._programs += 1
        group = PROGRAM_GROUPS + self._rank
        return OperationFacts(PROGRAM, names, "bytes", NO_OP, 0, 0, group, self._programs, (self._rank,))

    def _check(self, operation: Operation) -> None:
        """Record an operation whose programs have ended. A chip without kernels in the operation has a row, too, which
        begins and ends now: the operation is a row of the table if all of its chips have one.
        """
        facts = operation.facts
        if facts is None or operation.unfinished:
            return
        self._begin(operation)
        kernels, now_ps = operation.ended, self._engine.now_ps
        factor = (1, 1)
        if facts.collective in COLLECTIVES.names():
            factor = COLLECTIVES.get(facts.collective).busbw_factor(len(facts.chips)).as_integer_ratio()
        span_ps = (min(each.start_ps for each in kernels), max(each.end_ps for each in kernels)) if kernels else None
        links = combined(self._links(), operation.links, -1)
        elements, nbytes = facts.elements, facts.nbytes
        if facts.collective == PROGRAM:
            # The size of a program is the number of bytes of data in its traffic.
            elements = nbytes = sum(link.payload_bytes for link in links)
        use = _use_of(operation.start_ps, kernels, operation.kernel_ps)
        record = RunRecord(
            collective=facts.collective,
            algorithm=facts.algorithm,
            dtype=facts.dtype,
            op=facts.op,
            count=elements,
            nbytes=nbytes,
            busbw=factor,
            spans_ps=((operation.start_ps, now_ps),),
            kernels_ps=(span_ps,),
            wrong=None,
            first_wrong="",
            usage=Usage(operation.start_ps, now_ps, 1, use, links, "", 0),
            group=facts.group,
            sips=facts.chips,
            call=facts.call,
            run=operation.run,
            in_place=False,
        )
        self.runs.append(record)
        self._on_record(record)


def tiles_text(cores: Iterable[Core]) -> str:
    """Return a short text for the tiles of kernels: ``tile 9-6``, ``tiles 1-1, 2-1``, ``64 tiles, the first 1-1``."""
    tiles = sorted(set(cores), key=lambda core: (core.y, core.x))
    if len(tiles) > MOST_TILES:
        return f"{len(tiles)} tiles, the first {tiles[0]}"
    return f"tile{'s' * (len(tiles) > 1)} {', '.join(map(str, tiles))}"


def _use_of(start_ps: Ps, kernels: Iterable[KernelTimes], launch_ps: Ps) -> KernelUse:
    """Return the use of kernels whose row or program began at ``start_ps``."""
    waited: Counter[str] = Counter()
    count = kernel_ps = 0
    for kernel in kernels:
        count, kernel_ps = count + 1, kernel_ps + kernel.end_ps - start_ps
        waited.update(kernel.used_ps)
        waited[BEFORE_START] += kernel.start_ps - start_ps
    return KernelUse(count, kernel_ps, launch_ps, {name: ps for name, ps in waited.items() if ps})
