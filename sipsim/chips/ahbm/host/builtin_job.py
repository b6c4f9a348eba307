"""The built-in job: a collective on seeded data, size after size, with an exact check of each result.

The job is a host program like a user's script, and uses the same ``torch``. All ranks start each iteration at one
simulated time, so that no iteration contains the skew of the previous one. The expected result is exact, or
computed by ``reference`` of a user's algorithm.
"""

from dataclasses import dataclass
from functools import reduce
from itertools import chain
from math import prod
from typing import NamedTuple

import numpy as np
from msgspec.structs import replace

from sipsim.chips.ahbm.collectives.algorithm import Algorithm
from sipsim.chips.ahbm.collectives.catalog import ALL, AUTO, able, groups_of, ranked, reason, select
from sipsim.chips.ahbm.collectives.cost import estimate
from sipsim.chips.ahbm.collectives.launch import PlannedCall, plan_call
from sipsim.chips.ahbm.collectives.settings import effective_ipcq
from sipsim.chips.ahbm.collectives.wirings import PAIR_BYTES, ProcessGroup, ring_size
from sipsim.chips.ahbm.host.distributed import kernel_parameters
from sipsim.chips.ahbm.host.layout import COPIES, ROWS, DPPolicy, TensorBase
from sipsim.chips.ahbm.host.memory import aligned
from sipsim.chips.ahbm.host.process_groups import NonMember
from sipsim.chips.ahbm.host.tensor import Tensor
from sipsim.chips.ahbm.host.torch import Torch
from sipsim.chips.ahbm.plan import Plan
from sipsim.chips.ahbm.system import AhbmSystem
from sipsim.collectives.call import Array, Call
from sipsim.collectives.group import Group
from sipsim.collectives.reduction import NO_OP, combine_all, final
from sipsim.collectives.semantics import COLLECTIVES, INTERCUBE, Collective
from sipsim.collectives.testdata import NONE_WRONG, PIECE, Mismatch, check_contributions, compare, seeded_values
from sipsim.core.dtypes import DTYPES, DType
from sipsim.core.errors import ConfigError
from sipsim.core.registry import UnknownName
from sipsim.core.units import format_size
from sipsim.records.job import Job, JobRequest
from sipsim.topology.links import grid_text

MOST_FACTORS = 16
"""Number of ranks with a factor of 2 or 1/2: every product of such factors is exact in every floating type."""


class JobData:
    """Test data of a collective: the sources of all ranks, and the exact results. ``sips``: the SIP of each rank.

    ``shape``: shape of a source: (elements,), or (rows, elements) with a row per cube. An element depends only
    on its SIP and index. Sums are of small integers, so that every partial sum is exact. Factors of a product are 2
    and 1/2, or odd integers in integer types, of either sign: a lost factor changes every element. In floating types,
    ranks from ``MOST_FACTORS`` on have factors 1 and -1 instead: a lost factor changes half of the elements.
    """

    def __init__(
        self, collective: Collective, shape: tuple[int, ...], sips: tuple[int, ...], dtype: DType, op: str, seed: int
    ) -> None:
        self.shape = shape
        self.dtype = dtype
        self._collective = collective
        self._sips = sips
        self._op = op
        self._seed = seed
        size, rows = len(sips), prod(shape[:-1])
        self._n_elem = shape[-1] // collective.elements(1, size)[0]
        self._contributions = collective.contributions(size, rows) if collective.per_cube else size

    def source(self, rank: int) -> Array:
        """Return the source of a rank."""
        return self._combined([(rank, 0)], prod(self.shape)).reshape(self.shape)

    def result(self, rank: int, root: int) -> Array | None:
        """Return the exact result of a rank, or one row that equals all its rows; None if the rank gets no result."""
        return self._collective.result_from(self._total, len(self._sips), root, rank)

    def _total(self, ranks: list[int], unit: int) -> Array:
        start = self._collective.start_of(unit, self._n_elem, len(self._sips))
        starts = [(rank, start + row) for rank in ranks for row in range(0, prod(self.shape), self.shape[-1])]
        if self._collective.combines:
            return final(self._op, self._combined(starts, self._n_elem), len(starts))
        return np.reshape([self._combined([each], self._n_elem) for each in starts], (*self.shape[:-1], self._n_elem))

    def _combined(self, starts: list[tuple[int, int]], count: int) -> Array:
        """Combine ``count`` elements from each (rank, first element) in ``starts``, piece by piece; ``avg`` adds."""
        result = np.empty(count, self.dtype.numpy)
        for offset in range(0, count, PIECE):
            piece = result[offset : offset + PIECE]
            terms = (self._integers(rank, start + offset, len(piece)) for rank, start in starts)
            if self._op in ("sum", "avg"):
                # The sum in the type equals the integers' sum: exact in a floating type, wrapped in an integer type.
                piece[:] = reduce(np.add, terms)
            else:
                typed = [self._typed(rank, term) for (rank, _), term in zip(starts, terms, strict=True)]
                piece[:] = combine_all(self._op, typed)
        return result

    def _integers(self, rank: int, start: int, count: int) -> Array:
        first = self._sips[rank] * prod(self.shape) + start
        return seeded_values(first, count, self.dtype, self._seed, self._contributions)

    def _typed(self, rank: int, values: Array) -> Array:
        """Convert integers to the elements of a rank, for an operator that does not add."""
        if self._op != "prod":
            return values.astype(self.dtype.numpy)
        if not self.dtype.is_float:
            return (values * 2 + 1).astype(self.dtype.numpy)
        factor = 1.0 if rank >= MOST_FACTORS else 2.0 if rank % 2 else 0.5
        return np.where(values < 0, -factor, factor).astype(self.dtype.numpy)


class Buffers(NamedTuple):
    """A rank's call, the data of its source, and the expected result, which is None if results are not checked."""

    call: Call
    data: Array
    expected: Array | None


def _refresh(buffers: Buffers) -> None:
    """Restore the source and clear the result, so that a result of the previous iteration cannot pass the check."""
    source, result = buffers.call.source, buffers.call.result
    assert isinstance(source, Tensor)
    assert isinstance(result, Tensor)
    if result is not source:
        result.preset(np.zeros(result.shape))
    source.preset(buffers.data)


def _mismatch(buffers: Buffers) -> Mismatch:
    result = buffers.call.result
    if buffers.expected is None or result is None:
        return NONE_WRONG
    return compare(np.atleast_2d(result.peek()), buffers.expected)


def _sum(a: Mismatch, b: Mismatch) -> Mismatch:
    return Mismatch(a.elements + b.elements, a.first or b.first)


LEAST_SHARD_BYTES = 1024


def layout_of(job: Job, sizes: tuple[int, ...], system: AhbmSystem) -> DPPolicy:
    """Return the layout of tensors of ``sizes`` elements: the job's, or the layout of :func:`spread`."""
    if job.layout is not None:
        return DPPolicy("row_wise", "row_wise", *job.layout)
    return spread(sizes, DTYPES[job.dtype].itemsize, system.n_cubes, system.n_pes)


def spread(sizes: tuple[int, ...], itemsize: int, n_cubes: int, n_pes: int) -> DPPolicy:
    """Return a layout on as many PEs of a SIP as can equally share tensors of ``sizes`` elements.

    No shard is smaller than ``LEAST_SHARD_BYTES``, except the shard of a tensor on one PE.
    """
    for cubes, pes in ((n_cubes, n_pes), (n_cubes, 1), (1, n_pes)):
        shards = cubes * pes
        if all(size % shards == 0 and size // shards * itemsize >= LEAST_SHARD_BYTES for size in sizes):
            return DPPolicy("row_wise", "row_wise", cubes, pes)
    return DPPolicy("row_wise", "row_wise", 1, 1)


@dataclass(frozen=True)
class _PlannedTensor(TensorBase):
    """A tensor of a plan, before a SIP exists: it has no memory."""

    shape: tuple[int, ...]
    dtype: DType
    dp: DPPolicy


def group_job(request: JobRequest, collective: Collective, plan: Plan, job: Job) -> Job:
    """Complete ``job`` for a collective over groups of SIPs: algorithms, groups, layouts and sizes that can run.

    ``n_elems`` of the job counts elements of a unit; sizes in bytes are of the larger tensor of a rank.

    Raises:
        ConfigError: for a request that cannot run; the message states a remedy.
    """
    groups = groups_of(request.group, plan.system)
    size = len(groups[0]) if groups else plan.system.n_sips
    _check_group_flags(request, collective, size, plan)
    in_place = collective.in_place if request.in_place is None else request.in_place
    job = replace(
        job,
        op=request.op if collective.ops else NO_OP,
        n_elems=_n_elems(request, collective, size),
        groups=groups,
        root=request.root or 0,
        layout=request.layout,
        in_place=in_place,
    )
    for n_elem in job.n_elems:
        _check_tensors(job, collective, n_elem, size, plan)
    return _with_algorithms(job, request, collective, plan)


def _groups(job: Job, plan: Plan) -> tuple[tuple[int, ...], ...]:
    """Return the groups of a job, which have equal sizes; the group of all SIPs if the job names none."""
    return job.groups or (tuple(range(plan.system.n_sips)),)


def _is_in_place(job: Job, collective: Collective) -> bool:
    """Return whether source and result of a rank are one tensor. The flag is for collectives over groups only."""
    return collective.in_place if collective.per_cube else job.in_place


def tasks_of(job: Job, collective: Collective, plan: Plan) -> list[list[PlannedCall]]:
    """Return the planned calls of a job: per size, a list with a call per group."""
    groups = [Group(sips, plan.system) for sips in _groups(job, plan)]
    return [[_planned(job, collective, n_elem, group, plan) for group in groups] for n_elem in job.n_elems]


def group_notes(job: Job, plan: Plan) -> list[str]:
    """Return lines for the user: algorithms, ranks and workers of a job, and the notes of its request."""
    collective = COLLECTIVES.get(job.collective)
    size = len(_groups(job, plan)[0])
    workers = sorted({len(each.places) for tasks in tasks_of(job, collective, plan) for each in tasks})
    pes_text = f"{workers[0]} PEs" if len(workers) == 1 else f"{workers[0]} to {workers[-1]} PEs"
    pes_text = "1 PE" if workers == [1] else pes_text
    names = ", ".join(dict.fromkeys(chain(*job.algorithms)))
    how = "algorithm auto:" if job.is_auto else "algorithm" if "," not in names else "algorithms"
    lines = [f"{how} {names}: {size} ranks, a SIP each, with {pes_text} at work"]
    if len(job.groups) > 1:
        groups = "; ".join(", ".join(map(str, sips)) for sips in job.groups)
        lines.append(f"groups that run at the same time: {groups}")
    return [*lines, *job.notes]


def group_choices(job: Job, plan: Plan) -> list[str]:
    """Return lines for the user: for each size the chosen algorithm, and a table of all estimates."""
    collective = COLLECTIVES.get(job.collective)
    lines, tasks_by_size = [], tasks_of(job, collective, plan)
    for nbytes, tasks in zip(_sizes(job, collective, tasks_by_size[0][0].task.size), tasks_by_size, strict=True):
        first, *others = reason(ranked(plan.catalog, tasks[0]))
        lines += [f"size {nbytes}: auto chose {first}", *others]
    return lines


def group_estimates_ps(job: Job, plan: Plan) -> tuple[int, ...]:
    """Return for each row the slowest group's estimated time in ps, without launches, as ``auto`` compares it."""
    collective = COLLECTIVES.get(job.collective)
    return tuple(
        max(estimate(plan.catalog.get(name), task).time_ps for task in tasks)
        for tasks, names in zip(tasks_of(job, collective, plan), job.algorithms, strict=True)
        for name in names
    )


def tensor_bytes(job: Job, plan: Plan) -> tuple[int, ...]:
    """Return for each row the bytes of a rank's source and result; if both are one tensor, count it once."""
    collective = COLLECTIVES.get(job.collective or INTERCUBE)
    size = len(_groups(job, plan)[0])
    row = DTYPES[job.dtype].itemsize * (plan.system.n_cubes if collective.per_cube else 1)
    both = [collective.elements(n_elem, size) for n_elem in job.n_elems]
    counts = [max(each) if _is_in_place(job, collective) else sum(each) for each in both]
    times = [len(names) for names in job.algorithms] or [1] * len(counts)
    return tuple(row * count for count, number in zip(counts, times, strict=True) for _ in range(number))


def _sizes(job: Job, collective: Collective, size: int) -> list[int]:
    """Return for each size the bytes of the larger tensor of a rank."""
    return [max(collective.elements(n_elem, size)) * DTYPES[job.dtype].itemsize for n_elem in job.n_elems]


def _planned(job: Job, collective: Collective, n_elem: int, group: Group, plan: Plan) -> PlannedCall:
    dtype = DTYPES[job.dtype]
    sizes = collective.elements(n_elem, group.size)
    layout = layout_of(job, sizes, plan.system)
    source, result = (_PlannedTensor((numel,), dtype, layout) for numel in sizes)
    call = Call(source, source if job.in_place else result, job.op, (job.root,) if collective.has_root else ())
    return plan_call(collective, call, group, plan.system.n_pes, plan.worker_settings, ())


def _check_group_flags(request: JobRequest, collective: Collective, size: int, plan: Plan) -> None:
    name, dtype = collective.name, DTYPES[request.dtype]
    if request.root is not None and not collective.has_root:
        raise ConfigError(f"--root {request.root}: {name} has no root; leave the flag out")
    if request.root is not None and request.root >= size:
        raise ConfigError(f"--root {request.root}: the group has {size} ranks; give 0 to {size - 1}")
    if request.in_place and not collective.in_place:
        raise ConfigError(f"--in-place: {name} has a source and a separate result; leave the flag out")
    if not collective.ops and request.op != "sum":
        raise ConfigError(f"--op {request.op}: {name} moves data without an operator; leave the flag out")
    if collective.ops and request.op == "avg" and not dtype.is_float:
        raise ConfigError(f"--op avg: needs a floating type, not {request.dtype}; use --op sum, or --dtype f32")
    if request.verify_data and collective.ops and request.op in ("sum", "avg"):
        check_contributions(dtype, size)
    if request.layout is None:
        return
    sizes = (plan.system.n_cubes, plan.system.n_pes)
    if any(given > size for given, size in zip(request.layout, sizes, strict=True)):
        has = f"a SIP has {sizes[0]} cube{'s' * (sizes[0] > 1)} of {sizes[1]} PE{'s' * (sizes[1] > 1)}"
        raise ConfigError(f"--layout {grid_text(request.layout)}: {has}; give at most {grid_text(sizes)}")


def _n_elems(request: JobRequest, collective: Collective, size: int) -> tuple[int, ...]:
    larger = max(collective.elements(1, size)) * DTYPES[request.dtype].itemsize
    n_elems = request.n_elems or tuple(nbytes // larger for nbytes in request.sizes)
    if 0 in n_elems:
        what = f"{collective.name} on {size} ranks needs sizes of {larger} bytes or more in {request.dtype}"
        raise ConfigError(f"{request.size_source}: {what}")
    return n_elems


def _check_tensors(job: Job, collective: Collective, n_elem: int, size: int, plan: Plan) -> None:
    """Check that the layout divides the tensors, and that a PE's shards fit its HBM."""
    sizes = collective.elements(n_elem, size)
    if job.layout is not None:
        parts = prod(job.layout)
        for numel in sizes:
            if numel % parts:
                what = f"{parts} PEs cannot share a tensor of {numel} elements equally"
                raise ConfigError(f"--layout {grid_text(job.layout)}: {what}; give --n-elem a multiple of {parts}")
    shards = layout_of(job, sizes, plan.system).blocks()
    tensors = sizes[:1] if job.in_place else sizes
    needed = sum(aligned(numel // shards * DTYPES[job.dtype].itemsize) for numel in tensors)
    if needed > plan.hbm_room_bytes:
        limit = f"which has {plan.hbm_room_bytes} bytes; use smaller sizes, or spread the tensors with --layout"
        raise ConfigError(f"the largest tensors take {needed} bytes of a PE's HBM, {limit}")


def _with_algorithms(job: Job, request: JobRequest, collective: Collective, plan: Plan) -> Job:
    """Return the job with the algorithms of each size."""
    by_size: list[tuple[str, ...]] = []
    notes: dict[str, None] = {}
    for tasks in tasks_of(job, collective, plan):
        if request.algorithms == (ALL,):
            names, refused = able(plan.catalog, [each.task for each in tasks])
            notes.update({f"{name} does not run this {collective.name}: {refusal}": None for name, refusal in refused})
            if not names:
                raise ConfigError(f"--algorithm all: no algorithm of ccl.yaml can run {collective.name} on this system")
            by_size.append(tuple(names))
        else:
            by_size.append(tuple(_chosen(name, tasks, plan) for name in request.algorithms or ("",)))
    # These notes are first: a table without -v may show only one note.
    notes = {f"algorithm {name} is left out: {error}": None for name, error in plan.catalog.rejected.items()} | notes
    named = set(request.algorithms) - {AUTO}
    is_auto = not named and not (not request.algorithms and collective.name in plan.algorithm.collectives)
    if AUTO in request.algorithms and not is_auto:
        index, size = request.algorithms.index(AUTO), len(_groups(job, plan)[0])
        chosen = zip(_sizes(job, collective, size), by_size, strict=True)
        notes[f"auto chose {'; '.join(f'{names[index]} for {nbytes} B' for nbytes, names in chosen)}"] = None
    _check_rings({name for names in by_size for name in names}, job, plan)
    return replace(job, algorithms=tuple(by_size), is_auto=is_auto, notes=tuple(notes))


def _check_rings(names: set[str], job: Job, plan: Plan) -> None:
    """Check that the rings of each algorithm fit the window of a group.

    Raises:
        ConfigError: the rings do not fit, or there are fewer windows than groups with one SIP.
    """
    # A SIP is in the group of all SIPs, which every run makes, and in at most one group of the job.
    windows, needed = plan.new_windows(), 2 if job.groups else 1
    window_bytes = windows.nbytes - PAIR_BYTES if windows.count >= needed else 0
    for name in sorted(names):
        wiring = _algorithm(name, plan).wiring
        assert wiring is not None
        for sips in _groups(job, plan):
            ring_size(wiring(Group(sips, plan.system)), effective_ipcq(plan.resolved, name), window_bytes)


def _chosen(name: str, tasks: list[PlannedCall], plan: Plan) -> str:
    if name == ALL:
        raise ConfigError("--algorithm: 'all' stands for every algorithm; give 'all' without other names")
    try:
        chosen = [select(plan.catalog, each, plan.algorithm, name).name for each in tasks]
    except (ValueError, ConfigError) as error:
        raise ConfigError(f"{'--algorithm' if name else '--collective'}: {error}") from None
    return chosen[0]


def collective_job(request: JobRequest, plan: Plan) -> Job:
    """Return the job of a request. A size counts the bytes of a rank's larger tensor over all its cubes.

    Raises:
        ConfigError: for a collective, operator, type, size or flag that cannot run on this system.
    """
    collective, system = _collective(request, plan), plan.system
    request = _with_size_of_entry(request, collective, plan)
    if not collective.per_cube:
        return group_job(request, collective, plan, _job(request, collective, ()))
    _check_flags(request, collective, plan)
    dp = job_layout(plan)
    try:
        plan.world.check_holders([dp], 0)
    except ValueError as error:
        raise ConfigError(str(error)) from None
    if request.verify_data:
        check_contributions(DTYPES[request.dtype], collective.contributions(system.n_sips, dp.parts(ROWS)))
    sizes = collective.elements(1, system.n_sips)
    n_elems = request.n_elems or tuple(_elements(size, max(sizes), request, plan) for size in request.sizes)
    _check_room(n_elems, sizes[:1] if collective.in_place else sizes, request.dtype, plan)
    for n_elem in n_elems:
        if dp.num_pes > 1 and n_elem % dp.num_pes:
            what = f"algorithm {plan.algorithm.name} divides the elements of a cube equally among {dp.num_pes} PEs"
            raise ConfigError(f"{what}; give a multiple of {dp.num_pes} elements per cube, not {n_elem}")
        args = plan.world.kernel_args(system, 0, n_elem)
        plan.algorithm.check_takes(args, kernel_parameters(collective))
    return _job(request, collective, n_elems)


def _with_size_of_entry(request: JobRequest, collective: Collective, plan: Plan) -> JobRequest:
    """Return the request with the ``n_elem`` of its algorithms' entries as size, unless a flag gives the size.

    Raises:
        ConfigError: the entries give different sizes.
    """
    if not request.has_default_size:
        return request
    configured = collective.per_cube or collective.name in plan.algorithm.collectives
    names = request.algorithms or ((plan.algorithm.name,) if configured else ())
    entries = plan.resolved.ccl.algorithms
    sizes = {name: entries[name].n_elem for name in names if name in entries and entries[name].n_elem is not None}
    if len({*sizes.values()}) > 1:
        given = ", ".join(f"algorithms.{name}.n_elem = {n_elem}" for name, n_elem in sizes.items())
        raise ConfigError(f"{given}: a run has one size for all algorithms; give it with --n-elem")
    if not sizes:
        return request
    name, n_elem = sizes.popitem()
    return replace(request, sizes=(), n_elems=(n_elem,), size_source=f"algorithms.{name}.n_elem")


def _job(request: JobRequest, collective: Collective, n_elems: tuple[int, ...]) -> Job:
    op = request.op if collective.ops else NO_OP
    return Job.of(request, collective=collective.name, n_elems=n_elems, op=op)


def job_layout(plan: Plan) -> DPPolicy:
    """Return the layout of the job's tensors: a row per cube, or the algorithm's layout on the PEs of its kernels."""
    n_cubes, layout = plan.system.n_cubes, plan.algorithm.layout
    if layout is None or layout[1] == COPIES:
        return DPPolicy(num_cubes=n_cubes)
    return DPPolicy(*layout, num_cubes=n_cubes, num_pes=max(len(plan.world.places_on(0)) // n_cubes, 1))


def _check_flags(request: JobRequest, collective: Collective, plan: Plan) -> None:
    """Refuse flags of collectives over groups, and a list of several algorithms."""
    given = {
        f"--group {request.group}": bool(request.group),
        f"--root {request.root}": request.root is not None,
        "--layout": request.layout is not None,
        "--in-place" if request.in_place else "--out-of-place": request.in_place is not None,
    }
    for flag, is_given in given.items():
        if is_given:
            what = f"{collective.name} runs on all SIPs, in one layout"
            raise ConfigError(f"{flag}: {what}; leave the flag out, or name another --collective")
    if refusal := plan.why_not_wired:
        raise ConfigError(f"--collective {collective.name}: {refusal}")
    if len(request.algorithms) > 1 or ALL in request.algorithms:
        names = ",".join(request.algorithms)
        what = f"the algorithms of {collective.name} are wired before the run"
        others = "add a --collective over groups, which runs several, such as --collective all_reduce"
        raise ConfigError(f"--algorithm {names}: {what}; name one algorithm, or {others} (docs/collectives.md)")


def _collective(request: JobRequest, plan: Plan) -> Collective:
    named = request.collective or _usual_collective(request, plan)
    try:
        collective = COLLECTIVES.get(named)
    except UnknownName as error:
        raise ConfigError(f"--collective: {error}") from None
    if collective.ops and request.op not in collective.ops:
        raise ConfigError(
            f"--op {request.op}: {collective.name} has no such operator; allowed: {', '.join(collective.ops)}"
        )
    return collective


def _usual_collective(request: JobRequest, plan: Plan) -> str:
    """Return the name of the first collective that all requested algorithms run, or else the config's."""
    named = [name for name in request.algorithms if name not in (AUTO, ALL)]
    if not named:
        return next(iter(plan.algorithm.collectives), INTERCUBE)
    first, *others = (_algorithm(name, plan).collectives or (INTERCUBE,) for name in named)
    common = next((each for each in first if all(each in other for other in others)), None)
    if common is None:
        raise ConfigError(f"--algorithm {','.join(named)}: the algorithms share no collective; name fewer")
    return common


def _algorithm(name: str, plan: Plan) -> Algorithm:
    try:
        return plan.algorithm if name == plan.algorithm.name else plan.catalog.get(name)
    except ConfigError as error:
        raise ConfigError(f"--algorithm: {error}") from None


def _elements(size: int, multiple: int, request: JobRequest, plan: Plan) -> int:
    """Return the elements per cube of a unit, when a tensor of ``multiple`` units has ``size`` bytes."""
    row = plan.system.n_cubes * DTYPES[request.dtype].itemsize * multiple
    if size % row:
        near = max(size // row, 1) * row
        hint = "give --bytes a multiple" if request.has_default_size else "use a multiple"
        raise ConfigError(
            f"{request.size_source} {format_size(size)}: {size} bytes are no whole number of {request.dtype} elements "
            f"on each of {plan.system.n_cubes} cubes; {hint} of {row} bytes, such as {format_size(near)}"
        )
    return size // row


def _check_room(n_elems: tuple[int, ...], multiples: tuple[int, ...], dtype: str, plan: Plan) -> None:
    """Check that the tensors of each size fit the HBM of a cube; tensors are freed before the next size.

    ``multiples``: elements per cube of each tensor, in units of ``n_elems``.
    """
    itemsize = DTYPES[dtype].itemsize
    needed = max((sum(aligned(n_elem * each * itemsize) for each in multiples) for n_elem in n_elems), default=0)
    if needed > plan.hbm_room_bytes:
        raise ConfigError(
            f"the largest tensor takes {needed} bytes of each cube's HBM, which has {plan.hbm_room_bytes} bytes; "
            f"use smaller sizes or raise cube.hbm_MiB_per_pe"
        )


class BuiltinJob:
    """The built-in job of one rank: a result row for each size and algorithm.

    The first row starts at time 0, the others at a row start. Each iteration restores its data, starts on all ranks at
    one simulated time, and is checked. A rank outside of all groups only takes part in the common starts.
    """

    def __init__(self, job: Job, torch: Torch, plan: Plan, rank: int) -> None:
        self._job = job
        self._torch = torch
        self._plan = plan
        self._collective = COLLECTIVES.get(job.collective or INTERCUBE)
        self._sips = next((sips for sips in _groups(job, plan) if rank in sips), ())
        self._rank = self._sips.index(rank) if self._sips else -1
        self._group: ProcessGroup | None = None

    def run(self) -> None:
        """Run all rows, and add their records to ``torch.distributed.records``."""
        job, dist = self._job, self._torch.distributed
        dist.init_process_group(backend="ahbm")
        groups = [dist.new_group(sips) for sips in job.groups]
        self._group = next((group for group in groups if not isinstance(group, NonMember)), None)
        by_size = zip(job.n_elems, job.algorithms or [("",)] * len(job.n_elems), strict=True)
        for number, (n_elem, name) in enumerate((n_elem, name) for n_elem, names in by_size for name in names):
            if number:
                dist.begin_row()
            self._row(n_elem, name)

    def _row(self, n_elem: int, algorithm: str) -> None:
        """Run the iterations of a row on buffers that are allocated at its start and dropped at its end."""
        job, dist = self._job, self._torch.distributed
        times, wrong = [], NONE_WRONG
        dist.records.row = ""
        dist.count_from_here(job.warmup + job.iters)
        buffers = self._buffers(n_elem) if self._sips else None
        for iteration in range(job.warmup + job.iters):
            if buffers is not None:
                _refresh(buffers)
            if iteration:
                dist.start_together()
            if buffers is None:
                continue
            work = dist.start_collective(buffers.call, self._group, algorithm)
            # Copied before wait(): the end of a launch drops its tensors. A root is named by its rank in the run.
            call = work.call._replace(values=buffers.call.values)
            work.wait()
            times += [work.times] if iteration >= job.warmup else []
            wrong = _sum(wrong, _mismatch(buffers))
        if buffers is not None:
            dist.records.add(call, work, times, wrong if job.verify_data else None)

    def _buffers(self, n_elem: int) -> Buffers:
        job, collective, system = self._job, self._collective, self._plan.system
        size, rows = len(self._sips), tuple[int, ...]()
        if collective.per_cube:
            dp = job_layout(self._plan)
            rows = (dp.parts(ROWS),)
            sizes = collective.elements(n_elem * system.n_cubes // rows[0], size)
        else:
            sizes = collective.elements(n_elem, size)
            dp = layout_of(job, sizes, system)
        source, result = ((*rows, numel) for numel in sizes)
        call = self._call(source, result, dp)
        data = JobData(collective, source, self._sips, DTYPES[job.dtype], job.op, job.seed)
        expected = self._expected(data, call) if job.verify_data else None
        return Buffers(call, data.source(self._rank), expected)

    def _call(self, source: tuple[int, ...], result: tuple[int, ...], dp: DPPolicy) -> Call:
        """Return the call on new tensors of these shapes, or on one tensor if the job is in place."""
        job, collective, dtype = self._job, self._collective, DTYPES[self._job.dtype]
        read = self._torch.new_tensor(source, dtype, dp)
        written = read if _is_in_place(job, collective) else self._torch.new_tensor(result, dtype, dp)
        return Call(read, written, job.op, (self._sips[job.root],) if collective.has_root else (), collective)

    def _expected(self, data: JobData, call: Call) -> Array | None:
        """Return this rank's expected result, or one row that equals all its rows; None if the rank gets no result.

        A user's algorithm may give a collective that adds rows another meaning, which its ``reference`` computes. For
        algorithms of this package the exact sum takes less time and memory than a reference.
        """
        algorithm, collective = self._plan.algorithm, self._collective
        is_users = collective.per_cube and collective.combines and algorithm.is_users
        if algorithm.reference is None or not is_users:
            return data.result(self._rank, self._job.root)
        row = algorithm.reference([data.source(rank) for rank in range(len(self._sips))], self._plan.system)[self._rank]
        if row is None or call.result is None:
            return None
        expected, shape = np.asarray(row), call.result.shape
        if expected.dtype != data.dtype.numpy or expected.shape not in (shape, shape[1:]):
            returned, must = f"{expected.dtype}{list(expected.shape)}", f"{data.dtype.numpy}{list(shape)}"
            raise ValueError(
                f"algorithm {algorithm.name}: reference() returned {returned} for rank {self._rank}; must return {must}"
            )
        return expected
