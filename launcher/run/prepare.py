"""From options to a plan and a job, everything checked; nothing is started here."""

import sys
from argparse import Namespace
from pathlib import Path
from typing import NamedTuple

from launcher.run.options import DEFAULT_SIZE, Options
from sipsim.ccl.collectives.base import COLLECTIVES, NO_OP, Collective, default_collective
from sipsim.ccl.seeded import check_contributions
from sipsim.chips.base import NEEDS_SCRIPT, plan_of
from sipsim.chips.load import load
from sipsim.config.model import Resolved
from sipsim.config.override import Override, parse_set
from sipsim.dtypes import DTYPES
from sipsim.errors import ConfigError
from sipsim.host.allocator import aligned
from sipsim.host.script import check_script, find_script
from sipsim.plan.base import RunPlan
from sipsim.plan.job import Job
from sipsim.plan.plan import Plan
from sipsim.registry import UnknownName
from sipsim.units import format_size


class Prepared(NamedTuple):
    """The system (``plan``), the work (``job``), and the name of the engine."""

    plan: RunPlan
    job: Job
    engine: str


def resolve(options: Options | Namespace) -> Resolved:
    """The config files with every flag applied.

    Raises:
        ConfigError: one line with the file or flag, the key path, the value and what is allowed.
    """
    overrides = [parse_set(setting) for setting in options.settings]
    flags = (
        ("--sips", "system.sips.count", options.sips),
        ("--topology", "system.sips.topology", options.topology),
        ("--shape", "system.sips.shape", list(options.shape) if options.shape else None),
        ("--link", "system.sips.link", options.link),
        ("--algorithm", "defaults.algorithm", options.algorithm),
    )
    overrides += [Override(path, value, f"{flag} {_text(value)}") for flag, path, value in flags if value is not None]
    _let_import_from(Path.cwd(), *(file.resolve().parent for file in (options.config, options.ccl) if file))
    return load(options.config, options.ccl, overrides)


def prepare(options: Options) -> Prepared:
    """A plan and a job that can run.

    Raises:
        ConfigError: for everything that is known to fail before it starts.
    """
    resolved = resolve(options)
    plan = plan_of(resolved)
    if options.script is not None:
        check_script(find_script(options.script, options.as_module))
        return Prepared(plan, _script_job(options), options.engine)
    if not isinstance(plan, Plan):
        raise ConfigError(f"system.chip = {resolved.topology.system.chip}: {NEEDS_SCRIPT}")
    return Prepared(plan, _collective_job(options, plan), options.engine)


def describe(prepared: Prepared) -> str:
    """The text of ``--dry-run``."""
    system, job = prepared.plan.system, prepared.job
    notes = "".join(f"{note}; " for note in prepared.plan.notes())
    what = job.script or f"{job.collective} of {', '.join(str(n) for n in job.n_elems)} elements a cube, {job.dtype}"
    return (
        f"would run {what} on {system.describe()}, {len(prepared.plan.channels)} channels, "
        f"engine {prepared.engine}; {notes}plan {prepared.plan.digest[:16]}"
    )


def _script_job(options: Options) -> Job:
    return Job(
        script=options.script,
        check_invariants=options.check_invariants,
        as_module=options.as_module,
        script_args=options.script_args,
        verify=options.verify_data,
        seed=options.seed,
        record_io=options.verify_data,
        trace=options.trace_ccl is not None,
    )


def _collective_job(options: Options, plan: Plan) -> Job:
    collective, system = _collective(options), plan.system
    if options.verify_data:
        check_contributions(DTYPES[options.dtype], collective.contributions(system.n_sips, system.n_cubes))
    sizes = collective.elements(1, system.n_sips)
    n_elems = options.n_elems or tuple(_elements(size, max(sizes), options, plan) for size in options.sizes)
    _check_room(n_elems, sizes[:1] if collective.in_place else sizes, options.dtype, plan)
    for n_elem in n_elems:
        args = plan.world.kernel_args(system, 0, n_elem)
        plan.algorithm.check_takes(args, collective.kernel_takes)
    return Job(
        collective=collective.name,
        n_elems=n_elems,
        dtype=options.dtype,
        op=options.op if collective.ops else NO_OP,
        iters=options.iters,
        warmup=options.warmup,
        seed=options.seed,
        verify=options.verify_data,
        check_invariants=options.check_invariants,
        trace=options.trace_ccl is not None,
    )


def _collective(options: Options) -> Collective:
    try:
        collective = COLLECTIVES.get(options.collective or default_collective())
    except UnknownName as error:
        raise ConfigError(f"--collective: {error}") from None
    if collective.ops and options.op not in collective.ops:
        raise ConfigError(
            f"--op {options.op}: {collective.name} does not take it; allowed: {', '.join(collective.ops)}"
        )
    return collective


def _elements(size: int, multiple: int, options: Options, plan: Plan) -> int:
    """Elements a cube when a tensor of ``multiple`` times as many has ``size`` bytes."""
    row = plan.system.n_cubes * DTYPES[options.dtype].itemsize * multiple
    if size % row:
        near = max(size // row, 1) * row
        hint = "give --bytes with a multiple" if options.size_source == DEFAULT_SIZE else "use a multiple"
        raise ConfigError(
            f"{options.size_source} {format_size(size)}: {size} bytes are no whole number of {options.dtype} elements "
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


def _let_import_from(*folders: Path) -> None:
    """Modules of a user may lie here or beside the file that names them; installed packages come first."""
    sys.path += [str(folder) for folder in folders if str(folder) not in sys.path]


def _text(value: object) -> str:
    return "x".join(map(str, value)) if isinstance(value, list) else str(value)
