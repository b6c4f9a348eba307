"""From a request to the built-in job over groups of SIPs: algorithms, groups, layouts and sizes that can run."""

from dataclasses import dataclass
from itertools import chain
from math import prod

from msgspec.structs import replace

from sipsim.chips.ahbm.collectives.catalog.choice import ranked, reason
from sipsim.chips.ahbm.collectives.catalog.select import ALL, AUTO, able, select
from sipsim.chips.ahbm.collectives.catalog.subsets import groups_of
from sipsim.chips.ahbm.collectives.launch.launch import Prepared, prepared
from sipsim.chips.ahbm.host.builtin_job.group_job import layout_of
from sipsim.chips.ahbm.host.layout.dp_policy import DPPolicy
from sipsim.chips.ahbm.host.layout.shaped import Shaped
from sipsim.chips.ahbm.host.memory.allocator import aligned
from sipsim.chips.ahbm.plan import Plan
from sipsim.collectives.call.base import COLLECTIVES, NO_OP, Array, Call
from sipsim.collectives.call.overlap import Range
from sipsim.collectives.group.group import Group
from sipsim.collectives.semantics.group import GroupCollective
from sipsim.collectives.testdata import check_contributions
from sipsim.core.dtypes import DTYPES, DType
from sipsim.core.errors import ConfigError
from sipsim.records.job import Job, JobRequest


@dataclass(frozen=True)
class _Planned(Shaped):
    """A tensor before any SIP exists."""

    shape: tuple[int, ...]
    dtype: DType
    dp: DPPolicy

    def ranges(self) -> list[Range]:
        raise NotImplementedError("a tensor without addresses")

    def numpy(self) -> Array:
        raise NotImplementedError("a tensor without data")


def group_job(request: JobRequest, collective: GroupCollective, plan: Plan, job: Job) -> Job:
    """The job of a request for a collective over groups; ``job`` has what all jobs have.

    ``n_elems`` counts elements of a unit; sizes are those of the larger tensor of a rank.

    Raises:
        ConfigError: for what cannot run, with what to do.
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


def tasks_of(job: Job, collective: GroupCollective, plan: Plan) -> list[list[Prepared]]:
    """By size, what each group of a job runs."""
    every = job.groups or (tuple(range(plan.system.n_sips)),)
    groups = [Group(sips, plan.system) for sips in every]
    return [[_prepared(job, collective, n_elem, group, plan) for group in groups] for n_elem in job.n_elems]


def group_notes(job: Job, plan: Plan) -> list[str]:
    """The algorithms, ranks and workers of a job, and the notes of its request."""
    collective = COLLECTIVES.get(job.collective)
    assert isinstance(collective, GroupCollective)
    size = len(job.groups[0]) if job.groups else plan.system.n_sips
    workers = sorted({len(each.places) for tasks in tasks_of(job, collective, plan) for each in tasks})
    few_to_most = f"{workers[0]} PEs" if len(workers) == 1 else f"{workers[0]} to {workers[-1]} PEs"
    few_to_most = "1 PE" if workers == [1] else few_to_most
    names = ", ".join(dict.fromkeys(chain(*job.algorithms)))
    how = "algorithm auto:" if job.is_auto else "algorithm" if "," not in names else "algorithms"
    lines = [f"{how} {names}: {size} ranks, a SIP each, with {few_to_most} at work"]
    if len(job.groups) > 1:
        groups = "; ".join(", ".join(map(str, sips)) for sips in job.groups)
        lines.append(f"groups that run at the same time: {groups}")
    return [*lines, *job.notes]


def group_choices(job: Job, plan: Plan) -> list[str]:
    """For each size the algorithm that was chosen, and a table of its estimate and those of the others."""
    collective = COLLECTIVES.get(job.collective)
    assert isinstance(collective, GroupCollective)
    lines, every = [], tasks_of(job, collective, plan)
    for nbytes, tasks in zip(_sizes(job, collective, every[0][0].task.size), every, strict=True):
        first, *others = reason(ranked(plan.catalog, tasks[0]))
        lines += [f"size {nbytes}: auto chose {first}", *others]
    return lines


def _sizes(job: Job, collective: GroupCollective, size: int) -> list[int]:
    """Bytes of the larger tensor of a rank, by size."""
    return [max(collective.elements(n_elem, size)) * DTYPES[job.dtype].itemsize for n_elem in job.n_elems]


def _prepared(job: Job, collective: GroupCollective, n_elem: int, group: Group, plan: Plan) -> Prepared:
    dtype = DTYPES[job.dtype]
    sizes = collective.elements(n_elem, group.size)
    layout = layout_of(job, sizes, plan.system)
    source, result = (_Planned((numel,), dtype, layout) for numel in sizes)
    call = Call(source, source if job.in_place else result, job.op, (job.root,) if collective.has_root else ())
    return prepared(collective, call, group, plan.system.n_pes, plan.worker_settings, ())


def _check_group_flags(request: JobRequest, collective: GroupCollective, size: int, plan: Plan) -> None:
    name, dtype = collective.name, DTYPES[request.dtype]
    if request.root is not None and not collective.has_root:
        raise ConfigError(f"--root {request.root}: {name} has no root; leave it out")
    if request.root is not None and request.root >= size:
        raise ConfigError(f"--root {request.root}: the group has {size} ranks, 0 to {size - 1}")
    if request.in_place and not collective.in_place:
        raise ConfigError(f"--in-place: {name} has a source and a result of its own; leave it out")
    if not collective.ops and request.op != "sum":
        raise ConfigError(f"--op {request.op}: {name} moves data and combines none; leave it out")
    if collective.ops and request.op == "avg" and not dtype.is_float:
        raise ConfigError(f"--op avg: needs a floating type, not {request.dtype}; use --op sum, or --dtype f32")
    if request.verify and collective.ops and request.op in ("sum", "avg"):
        check_contributions(dtype, size)
    if request.layout is None:
        return
    most = (plan.system.n_cubes, plan.system.n_pes)
    if any(given > there for given, there in zip(request.layout, most, strict=True)):
        has = f"a SIP has {most[0]} cube{'s' * (most[0] > 1)} of {most[1]} PE{'s' * (most[1] > 1)}"
        raise ConfigError(f"--layout {_grid(request.layout)}: {has}; give at most {_grid(most)}")


def _n_elems(request: JobRequest, collective: GroupCollective, size: int) -> tuple[int, ...]:
    larger = max(collective.elements(1, size)) * DTYPES[request.dtype].itemsize
    n_elems = request.n_elems or tuple(nbytes // larger for nbytes in request.sizes)
    if 0 in n_elems:
        what = f"{collective.name} on {size} ranks takes at least {larger} bytes in {request.dtype}"
        raise ConfigError(f"{request.size_source}: {what}")
    return n_elems


def _check_tensors(job: Job, collective: GroupCollective, n_elem: int, size: int, plan: Plan) -> None:
    """That the layout divides the tensors, and that they fit the HBM of a PE."""
    sizes = collective.elements(n_elem, size)
    if job.layout is not None:
        parts = prod(job.layout)
        for numel in sizes:
            if numel % parts:
                what = f"{parts} PEs cannot share a tensor of {numel} elements equally"
                raise ConfigError(f"--layout {_grid(job.layout)}: {what}; give --n-elem with a multiple of {parts}")
    shards = layout_of(job, sizes, plan.system).blocks()
    tensors = sizes[:1] if job.in_place else sizes
    needed = sum(aligned(numel // shards * DTYPES[job.dtype].itemsize) for numel in tensors)
    if needed > plan.hbm_room_bytes:
        room = f"which has room for {plan.hbm_room_bytes}; use smaller sizes, or spread the tensor with --layout"
        raise ConfigError(f"the largest tensors take {needed} bytes of a PE's HBM, {room}")


def _with_algorithms(job: Job, request: JobRequest, collective: GroupCollective, plan: Plan) -> Job:
    """The job with the algorithms of each size."""
    by_size: list[tuple[str, ...]] = []
    notes: dict[str, None] = {}
    for tasks in tasks_of(job, collective, plan):
        if request.algorithms == (ALL,):
            names, refused = able(plan.catalog, [each.task for each in tasks])
            notes.update({f"{name} does not run this {collective.name}: {why}": None for name, why in refused})
            if not names:
                raise ConfigError(f"--algorithm all: no algorithm of ccl.yaml runs {collective.name} here")
            by_size.append(tuple(names))
        else:
            by_size.append(tuple(_chosen(name, tasks, plan) for name in request.algorithms or ("",)))
    # First, as a table without -v may show one note only.
    notes = {f"algorithm {name} is left out: {why}": None for name, why in plan.catalog.left_out.items()} | notes
    named = set(request.algorithms) - {AUTO}
    is_auto = not named and not (not request.algorithms and collective.name in plan.algorithm.collectives)
    if AUTO in request.algorithms and not is_auto:
        place, size = request.algorithms.index(AUTO), len(job.groups[0]) if job.groups else plan.system.n_sips
        chosen = zip(_sizes(job, collective, size), by_size, strict=True)
        notes[f"auto chose {'; '.join(f'{names[place]} for {nbytes} B' for nbytes, names in chosen)}"] = None
    return replace(job, algorithms=tuple(by_size), is_auto=is_auto, notes=tuple(notes))


def _chosen(name: str, tasks: list[Prepared], plan: Plan) -> str:
    if name == ALL:
        raise ConfigError("--algorithm: all names every algorithm; give it alone")
    try:
        chosen = [select(plan.catalog, each, plan.algorithm, name).name for each in tasks]
    except (ValueError, ConfigError) as error:
        raise ConfigError(f"{'--algorithm' if name else '--collective'}: {error}") from None
    return chosen[0]


def _grid(layout: tuple[int, int]) -> str:
    return f"{layout[0]}x{layout[1]}"
