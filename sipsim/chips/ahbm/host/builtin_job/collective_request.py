"""From a request to the built-in job: a collective that can run on the system, with sizes that fit."""

from sipsim.chips.ahbm.collectives.algorithm import Algorithm
from sipsim.chips.ahbm.collectives.catalog.select import ALL, AUTO
from sipsim.chips.ahbm.host.builtin_job.group_request import group_job
from sipsim.chips.ahbm.host.layout.dp_policy import COPIES, ROWS, DPPolicy
from sipsim.chips.ahbm.host.memory.allocator import aligned
from sipsim.chips.ahbm.plan import Plan
from sipsim.collectives.call.base import COLLECTIVES, NO_OP, Collective, default_collective
from sipsim.collectives.semantics.group import GroupCollective
from sipsim.collectives.testdata import check_contributions
from sipsim.core.dtypes import DTYPES
from sipsim.core.errors import ConfigError
from sipsim.core.registry.registry import UnknownName
from sipsim.core.units import format_size
from sipsim.records.job import Job, JobRequest


def collective_job(request: JobRequest, plan: Plan) -> Job:
    """The job of a request. Sizes are those of the larger tensor, in bytes over all cubes of a SIP.

    Raises:
        ConfigError: for a collective, operator, type or size that cannot run on this system.
    """
    collective, system = _collective(request, plan), plan.system
    if isinstance(collective, GroupCollective):
        return group_job(request, collective, plan, _job(request, collective, ()))
    _check_flags(request, collective, plan)
    dp = job_layout(plan)
    try:
        plan.world.check_holders([dp], 0)
    except ValueError as error:
        raise ConfigError(str(error)) from None
    if request.verify:
        check_contributions(DTYPES[request.dtype], collective.contributions(system.n_sips, dp.parts(ROWS)))
    sizes = collective.elements(1, system.n_sips)
    n_elems = request.n_elems or tuple(_elements(size, max(sizes), request, plan) for size in request.sizes)
    _check_room(n_elems, sizes[:1] if collective.in_place else sizes, request.dtype, plan)
    for n_elem in n_elems:
        if dp.num_pes > 1 and n_elem % dp.num_pes:
            what = f"the {dp.num_pes} PEs of a cube, which algorithm {plan.algorithm.name} divides a tensor among"
            raise ConfigError(f"{n_elem} elements a cube are no whole number for each of {what}")
        args = plan.world.kernel_args(system, 0, n_elem)
        plan.algorithm.check_takes(args, collective.kernel_takes)
    return _job(request, collective, n_elems)


def _job(request: JobRequest, collective: Collective, n_elems: tuple[int, ...]) -> Job:
    return Job(
        collective=collective.name,
        n_elems=n_elems,
        dtype=request.dtype,
        op=request.op if collective.ops else NO_OP,
        iters=request.iters,
        warmup=request.warmup,
        seed=request.seed,
        verify=request.verify,
        check_invariants=request.check_invariants,
        trace=request.trace,
        oplog=request.oplog,
        explain=request.explain,
    )


def job_layout(plan: Plan) -> DPPolicy:
    """The layout of the job's tensors: a row a cube, or what the algorithm takes, on the PEs that it runs on."""
    n_cubes, layout = plan.system.n_cubes, plan.algorithm.layout
    if layout is None or layout[1] == COPIES:
        return DPPolicy(num_cubes=n_cubes)
    return DPPolicy(*layout, num_cubes=n_cubes, num_pes=max(len(plan.world.places_on(0)) // n_cubes, 1))


def _check_flags(request: JobRequest, collective: Collective, plan: Plan) -> None:
    """Flags that only collectives over a group take, of which several may run one after the other."""
    given = {
        f"--group {request.group}": bool(request.group),
        f"--root {request.root}": request.root is not None,
        "--layout": request.layout is not None,
        "--in-place" if request.in_place else "--out-of-place": request.in_place is not None,
    }
    for flag, is_given in given.items():
        if is_given:
            what = f"{collective.name} runs on all SIPs, in one layout"
            raise ConfigError(f"{flag}: {what}; leave it out, or name another --collective")
    if why := plan.why_not_wired:
        raise ConfigError(f"--collective {collective.name}: {why}")
    if len(request.algorithms) > 1 or ALL in request.algorithms:
        names = ",".join(request.algorithms)
        what = f"the algorithms of {collective.name} are wired before the run"
        others = "add a --collective over groups, such as --collective all_reduce"
        raise ConfigError(
            f"--algorithm {names}: {what}; name one, or {others}, which runs several (docs/collectives.md)"
        )


def _collective(request: JobRequest, plan: Plan) -> Collective:
    named = request.collective or _usual_collective(request, plan)
    try:
        collective = COLLECTIVES.get(named)
    except UnknownName as error:
        raise ConfigError(f"--collective: {error}") from None
    if collective.ops and request.op not in collective.ops:
        raise ConfigError(
            f"--op {request.op}: {collective.name} does not take it; allowed: {', '.join(collective.ops)}"
        )
    return collective


def _usual_collective(request: JobRequest, plan: Plan) -> str:
    """The first that all algorithms of the request run, or that of the config."""
    named = [name for name in request.algorithms if name not in (AUTO, ALL)]
    if not named:
        return next(iter(plan.algorithm.collectives), default_collective())
    first, *others = (_algorithm(name, plan).collectives or (default_collective(),) for name in named)
    found = next((each for each in first if all(each in other for other in others)), None)
    if found is None:
        raise ConfigError(f"--algorithm {','.join(named)}: they have no collective in common; name those of one")
    return found


def _algorithm(name: str, plan: Plan) -> Algorithm:
    try:
        return plan.algorithm if name == plan.algorithm.name else plan.catalog.get(name)
    except ConfigError as error:
        raise ConfigError(f"--algorithm: {error}") from None


def _elements(size: int, multiple: int, request: JobRequest, plan: Plan) -> int:
    """Elements a cube when a tensor of ``multiple`` times as many has ``size`` bytes."""
    row = plan.system.n_cubes * DTYPES[request.dtype].itemsize * multiple
    if size % row:
        near = max(size // row, 1) * row
        hint = "give --bytes with a multiple" if request.has_default_size else "use a multiple"
        raise ConfigError(
            f"{request.size_source} {format_size(size)}: {size} bytes are no whole number of {request.dtype} elements "
            f"on each of {plan.system.n_cubes} cubes; {hint} of {row}, such as {format_size(near)}"
        )
    return size // row


def _check_room(n_elems: tuple[int, ...], multiples: tuple[int, ...], dtype: str, plan: Plan) -> None:
    """``multiples``: how large each tensor is. The tensors of one size are freed before the next size."""
    itemsize = DTYPES[dtype].itemsize
    needed = max((sum(aligned(n_elem * each * itemsize) for each in multiples) for n_elem in n_elems), default=0)
    if needed > plan.hbm_room_bytes:
        raise ConfigError(
            f"the largest tensor takes {needed} bytes of each cube's HBM, which has room for {plan.hbm_room_bytes}; "
            f"use smaller sizes or raise cube.hbm_MiB_per_pe"
        )
