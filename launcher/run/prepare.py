"""From options to a plan and a job, everything checked; nothing is started here."""

import sys
from argparse import Namespace
from pathlib import Path
from typing import NamedTuple

from launcher.run.listing import COLLECTIVES
from launcher.run.options import DEFAULT_SIZE, Options
from sipsim.ccl.settings import effective_rank_per
from sipsim.config.model import Resolved
from sipsim.config.override import Override, parse_set
from sipsim.dtypes import DTYPES
from sipsim.errors import ConfigError
from sipsim.host.allocator import aligned
from sipsim.host.script import check_script, find_script
from sipsim.host.seeded import check_contributions
from sipsim.plan.job import Job
from sipsim.plan.load import load
from sipsim.plan.plan import Plan
from sipsim.registry import unknown_name
from sipsim.units import format_size


class Prepared(NamedTuple):
    """The system (``plan``), the work (``job``), and the name of the engine."""

    plan: Plan
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
    plan = Plan(resolved)
    if options.script is not None:
        check_script(find_script(options.script, options.as_module))
    elif options.collective not in COLLECTIVES:
        raise ConfigError(f"--collective: {unknown_name('collective', options.collective, COLLECTIVES)}")
    return Prepared(plan, _job(options, plan), options.engine)


def describe_algorithm(plan: Plan) -> str:
    """The algorithm, its number of ranks and its neighbour table, as text."""
    name, table = plan.algorithm.name, plan.algorithm.entry.topology
    ranks = "1 rank" if plan.world_size == 1 else f"{plan.world_size} ranks"
    per = {"pe": "PE", "cube": "cube", "sip": "SIP"}[effective_rank_per(plan.resolved, name)]
    return f"algorithm {name}: {ranks}, a {per} each, neighbour table {table}"


def describe(prepared: Prepared) -> str:
    """The text of ``--dry-run``."""
    system, job = prepared.plan.system, prepared.job
    what = job.script or f"{job.collective} of {', '.join(str(n) for n in job.n_elems)} elements a cube, {job.dtype}"
    return (
        f"would run {what} on {system.describe()}, {len(prepared.plan.channels)} channels, "
        f"engine {prepared.engine}; {describe_algorithm(prepared.plan)}; plan {prepared.plan.digest[:16]}"
    )


def _job(options: Options, plan: Plan) -> Job:
    if options.script is not None:
        return Job(
            script=options.script,
            check_invariants=options.check_invariants,
            as_module=options.as_module,
            script_args=options.script_args,
            verify=options.verify_data,
            seed=options.seed,
        )
    if options.verify_data:
        check_contributions(DTYPES[options.dtype], plan.system.n_sips * plan.system.n_cubes)
    n_elems = options.n_elems or tuple(_elements(size, options, plan) for size in options.sizes)
    _check_room(n_elems, options.dtype, plan)
    for n_elem in n_elems:
        plan.algorithm.check_takes(plan.algorithm.kernel_args(plan.system, plan.world_size, 0, n_elem))
    return Job(
        collective=options.collective,
        n_elems=n_elems,
        dtype=options.dtype,
        op=options.op,
        iters=options.iters,
        warmup=options.warmup,
        seed=options.seed,
        verify=options.verify_data,
        check_invariants=options.check_invariants,
    )


def _elements(size: int, options: Options, plan: Plan) -> int:
    """Elements a cube of a tensor of ``size`` bytes."""
    row = plan.system.n_cubes * DTYPES[options.dtype].itemsize
    if size % row:
        near = max(size // row, 1) * row
        hint = "give --bytes with a multiple" if options.size_source == DEFAULT_SIZE else "use a multiple"
        raise ConfigError(
            f"{options.size_source} {format_size(size)}: {size} bytes are no whole number of {options.dtype} elements "
            f"on each of {plan.system.n_cubes} cubes; {hint} of {row}, such as {format_size(near)}"
        )
    return size // row


def _check_room(n_elems: tuple[int, ...], dtype: str, plan: Plan) -> None:
    """The tensor of one size is freed before the next size."""
    needed = max((aligned(n_elem * DTYPES[dtype].itemsize) for n_elem in n_elems), default=0)
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
