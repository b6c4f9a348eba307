"""Preparation of a run: from options to a checked plan and job. No process is started."""

import os
import socket
import sys
import traceback
from argparse import Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

from msgspec import convert, to_builtins

from broker.mail.kinds import is_seeded
from launcher.options import ALGORITHM, FLAGS, HOSTS, Flag, Options, given_options
from launcher.supervise.fault_injector import CUT_PROGRAM
from launcher.supervise.run import Run
from sipsim.chips.ahbm.collectives.catalog import ALL, AUTO, Catalog
from sipsim.chips.api.chip import kind_of, planned
from sipsim.chips.api.run_plan import RunPlan
from sipsim.chips.config import load
from sipsim.config.load import Override, parse_set
from sipsim.config.schema import Resolved
from sipsim.config.yaml import one_line
from sipsim.core.dtypes import DTYPES
from sipsim.core.errors import ConfigError, error_text
from sipsim.core.registry import is_definer
from sipsim.core.units import LONGEST_TIME_S, PS_PER_S, format_exact_time_ps, format_time_ps
from sipsim.node.faults import HOST_KINDS, BadFault, Fault, FaultPlan, RandomFaults, parse_fault, parse_outage
from sipsim.node.script import SHARED_PACKAGES, calls_spawn, check_script, find_script
from sipsim.records.code_place import INSTALLED
from sipsim.records.job import Job, JobRequest, Recording


def resolve(options: Options | Namespace) -> Resolved:
    """Return the config: the config files, changed by the flags of ``options``.

    Raises:
        ConfigError: one line with the file or flag, the key path, the value and what is allowed.
    """
    overrides = overrides_of(options)
    _let_import_from(
        Path.cwd(), *(Path(os.path.realpath(file)).parent for file in (options.config, options.ccl) if file)
    )
    try:
        resolved = load(options.config, options.ccl, overrides, options.variant)
        outages, jitter = getattr(options, "outages", ()), getattr(options, "jitter", None)
        more = [_with_outages(resolved, outages)] if outages else []
        more += [_with_jitter(resolved, jitter)] if jitter is not None else []
        return load(options.config, options.ccl, [*overrides, *more], options.variant) if more else resolved
    except ConfigError as error:
        # The message names the config key; the user has given the flag --algorithm.
        name = _one_algorithm(options.algorithm)
        flag = f"--algorithm {name}: {ALGORITHM}: "
        text = str(error).replace(flag, "--algorithm: ")
        if text.startswith("--algorithm: unknown"):
            rest = [each for each in overrides if ALGORITHM not in each.paths()]
            catalog = Catalog(load(options.config, options.ccl, rest, options.variant))
            text = f"--algorithm: {catalog.unknown(str(name), getattr(options, 'collective', None))}"
        raise ConfigError(text) from None


def overrides_of(options: Options | Namespace) -> list[Override]:
    """Return the config changes that the flags of ``options`` make.

    Raises:
        ConfigError: for a ``--set`` that cannot be read, or a key that two flags set.
    """
    settings = [parse_set(text) for text in options.settings]
    values = [(flag, _value_of(flag, getattr(options, name))) for name, flag in FLAGS.items() if flag.sets]
    given = [(flag.sets, value, f"{flag.name} {_text(value)}") for flag, value in values if value is not None]
    origins = {path: each.origin for each in settings for path in each.paths()}
    for path, _, origin in given:
        if path in origins:
            raise ConfigError(f"{origins[path]}: {origin} sets {path}, too; leave one of the two out")
    return [*_cluster_overrides(options), *settings, *(Override(*each) for each in given)]


def _value_of(flag: Flag, value: Any) -> object:
    """Return the value to which a flag sets its config key; None if the flag does not set the key."""
    if flag.sets == ALGORITHM:
        return _one_algorithm(value)
    return list(value) if isinstance(value, tuple) else value


def _cluster_overrides(options: Options | Namespace) -> list[Override]:
    """Return the SIPs and links of ``--cluster`` as config changes, so that other hosts do not need the file."""
    if options.cluster is None:
        return []
    from sipsim.topology.tenstorrent import BLACKHOLE, WORMHOLE
    from sipsim.topology.umd import read_cluster

    origin = one_line(f"--cluster {options.cluster}")
    if options.topology is not None:
        raise ConfigError(f"--topology {options.topology}: {origin} defines the topology; leave one of the two out")
    cluster = read_cluster(options.cluster)
    # Files without an architecture, such as those of the UMD guide, describe Wormhole chips.
    values, chip = cluster.sips(), cluster.chip or options.chip or WORMHOLE
    if options.sips not in (None, values["count"]):
        raise ConfigError(f"--sips {options.sips}: {origin} has {values['count']} chips; leave --sips out")
    if options.chip in ({WORMHOLE, BLACKHOLE} - {chip}):
        raise ConfigError(f"--chip {options.chip}: the chips of {origin} are {chip}; leave --chip out")
    return [Override("system.sips", values, origin), Override("system.chip", chip, origin)]


def _with_outages(resolved: Resolved, specs: Sequence[str]) -> Override:
    """Return a config change with the outages of the config and the outages of ``--fault``."""
    try:
        more = [parse_outage(spec) for spec in specs]
    except BadFault as error:
        raise ConfigError(f"--fault {error}") from None
    outages = to_builtins(resolved.topology.system.sips.outages)
    return Override("system.sips.outages", [*outages, *more], f"--fault {' --fault '.join(specs)}")


def _with_jitter(resolved: Resolved, seed: int) -> Override:
    """Return a config change with the seed of jitter; raise ConfigError for a chip without jitter."""
    if "jitter" not in kind_of(resolved).Params.__struct_fields__:
        chip = resolved.topology.system.chip
        raise ConfigError(f"--jitter {seed}: chip {chip} has no jitter; choose another chip, such as --chip wormhole")
    return Override("system.chip_params.jitter.seed", seed, f"--jitter {seed}")


def prepare(options: Options) -> Run:
    """Return the run of these options, with its plan and its job.

    Raises:
        ConfigError: if the run is known to fail before any process starts.
    """
    resolved = resolve(options)
    kind = kind_of(resolved)
    if options.trace_ccl is not None and not kind.traces:
        chip = resolved.topology.system.chip
        raise ConfigError(f"--trace-ccl: chip {chip} traces no collectives; record with --oplog FILE instead")
    plan, request = planned(resolved), convert(options, JobRequest, from_attributes=True)
    if options.script is not None:
        if options.spawn is None and calls_spawn(options.script, options.as_module):
            how = "run it with ahbm-launch or python, or define worker(rank, world_size, torch)"
            raise ConfigError(f"{options.script}: calls mp.spawn in its main program; {how}")
        check_script(find_script(options.script, options.as_module), "worker" if options.spawn is None else "")
        records: tuple[Recording, ...] = ("data",) if options.verify_data and kind.compares else ()
        return Run(options, plan, Job.of(request, records=(*request.records, *records)))
    if kind.jobs is None:
        chip = resolved.topology.system.chip
        raise ConfigError(f"system.chip = {chip}: SIPs of this chip run host scripts only; give a script")
    job = kind.jobs.job(request, plan)
    with resolved.reads.apart():
        kind.jobs.check_overrides(job, plan, overrides_of(options))
    return Run(options, plan, job)


def describe(run: Run) -> str:
    """Return the first line of ``--dry-run``."""
    system, job = run.plan.system, run.job
    kind = kind_of(system.resolved)
    notes = "".join(f"{note}; " for note in kind.notes(job, run.plan))
    what = job.script or (kind.jobs.describe(job) if kind.jobs else "")
    return (
        f"would run {what} on {system.describe()}, {len(run.plan.channels)} channels, "
        f"engine {run.options.engine}; {notes}plan {run.plan.digest[:16]}"
    )


def _one_algorithm(names: tuple[str, ...] | None) -> str | None:
    """Return the entry of ``ccl.yaml`` that ``--algorithm`` names if it names exactly one; else None."""
    return names[0] if names is not None and len(names) == 1 and names[0] not in (AUTO, ALL) else None


def _let_import_from(*folders: Path) -> None:
    """Add folders to the import path, after installed packages, for modules of a user."""
    sys.path += [str(folder) for folder in folders if str(folder) not in sys.path]


def _text(value: object) -> str:
    return "x".join(map(str, value)) if isinstance(value, list) else str(value)


PS_PER_BYTE = 17
PS_PER_SIP = 300_000
LEAST_PS = 1_000_000
LONGEST_PS = LONGEST_TIME_S * PS_PER_S
"""The terms above estimate the time of a collective; random faults are spread over at most ``LONGEST_PS``."""
ONE_HOST = "--engine local (the default) uses this host only; choose another, such as --engine ssh"
RECORDS_STAY = "records of ranks that are started by hand (ahbm-broker, --engine manual) stay on their hosts"


def check_flags(options: Options) -> None:
    """Check that flags suit each other and the engine.

    Raises:
        ConfigError: with the flags and an alternative.
    """
    if len(options.to_standard_output) > 1:
        flags = " and ".join(f"{flag} -" for flag in options.to_standard_output)
        raise ConfigError(f"{flags}: only one result can be written to standard output; name a file for the others")
    chosen = [
        flag for name, flag in FLAGS.items() if flag.processes and getattr(options, name) != getattr(Options, name)
    ]
    for flag in chosen:
        if options.engine == "inproc":
            raise ConfigError(
                f"{flag.name}: --engine inproc has no processes of SIPs; use another engine, such as local"
            )
        if options.engine == "local" and flag.group == HOSTS:
            raise ConfigError(f"{flag.name}: {ONE_HOST}")
    if is_seeded(options.mail) and options.engine != "inproc":
        raise ConfigError(f"--mail {options.mail}: works only within one process; add --engine inproc")
    # Files of SIPs that are started by hand stay on their hosts.
    for name, flag in FLAGS.items():
        if options.engine == "manual" and flag.records and getattr(options, name):
            raise ConfigError(f"{flag.name}: {RECORDS_STAY}; leave {flag.name} out")
    if options.script is not None and (len(options.algorithm or ()) > 1 or options.algorithm == (ALL,)):
        names = ",".join(options.algorithm or ())
        raise ConfigError(f"--algorithm {names}: each call of a script can name an algorithm; give one here, or none")
    for spec in options.faults:
        fault = _parsed(spec)
        if isinstance(fault, Fault) and fault.kind in HOST_KINDS and options.engine == "local":
            raise ConfigError(f"--fault {spec}: {ONE_HOST}")
        if isinstance(fault, Fault) and _is_beyond(fault, options.max_sim_ps):
            end = format_exact_time_ps(options.max_sim_ps or 0)
            raise ConfigError(f"--fault {spec}: the run ends earlier, at --max-sim-time {end}; name an earlier time")
        if isinstance(fault, Fault) and fault.kind == "cut" and not os.environ.get(CUT_PROGRAM):
            raise ConfigError(
                f"--fault {spec}: set {CUT_PROGRAM} to a program that disconnects the host named by its argument"
            )
    if options.bind is not None:
        _check_address(options.bind)


def check_verification(options: Options, argv: list[str], resolved: Resolved) -> None:
    """Check ``--verify-data`` and ``--check-invariants``, which some chips do not support.

    Raises:
        ConfigError: one line with the flag and what to do.
    """
    kind, given, chip = kind_of(resolved), given_options(argv), resolved.topology.system.chip
    if kind.compares and options.engine == "manual" and options.script is not None and options.verify_data:
        raise ConfigError(f"--verify-data: {RECORDS_STAY}; give --no-verify-data with a script")
    if not kind.verifies and "verify_data" in given and options.verify_data:
        what = f"chip {chip} has no second pass, and no collectives whose results are compared"
        raise ConfigError(f"--verify-data: {what}; leave --verify-data out, and check the data in the script")
    if not kind.has_queues and "check_invariants" in given:
        raise ConfigError(f"--check-invariants: chip {chip} has no IPCQ queues to check; leave --check-invariants out")


def unverified(options: Options, resolved: Resolved) -> list[str]:
    """Return a list with one line if ``--no-verify-data`` is given without effect; else an empty list."""
    if options.verify_data or kind_of(resolved).verifies:
        return []
    return [f"--no-verify-data has no effect: chip {resolved.topology.system.chip} has no second pass"]


def check_system(options: Options, n_sips: int) -> None:
    """Check that ranks in flags exist, and that the hosts have slots for all SIPs.

    Raises:
        ConfigError: one line with the flag and what is allowed.
    """
    for rank in options.tee or ():
        if rank >= n_sips:
            raise ConfigError(f"--tee {rank}: there is no SIP {rank}; ranks are 0 to {n_sips - 1}")
    slots = [number for _, number in options.hosts]
    if slots and None not in slots and sum(filter(None, slots)) < n_sips:
        given = ",".join(f"{name}:{number}" for name, number in options.hosts)
        more = "give more slots, or leave a number out"
        raise ConfigError(f"--hosts {given}: slots for {sum(filter(None, slots))} of {n_sips} SIPs; {more}")


def faults_of(run: Run) -> tuple[str, ...]:
    """Return the specs of all faults of ``--fault``; random faults are drawn here.

    Raises:
        ConfigError: if a fault cannot happen in this run.
    """
    options, plan = run.options, run.plan
    faults: list[Fault] = []
    for spec in options.faults:
        fault = _parsed(spec)
        if isinstance(fault, RandomFaults):
            span = min(span_ps(plan, run.job), options.max_sim_ps or LONGEST_PS)
            faults += fault.draw(plan.system.n_sips, span, options.max_restarts > 0)
        else:
            faults.append(fault)
    planned = FaultPlan(faults)
    try:
        planned.check(plan.system.n_sips, [name for name, _ in options.hosts])
    except BadFault as error:
        raise ConfigError(f"--fault {error}") from None
    return planned.texts()


def span_ps(plan: RunPlan, job: Job) -> int:
    """Return an estimate of a run's simulated time in ps, over which random faults are spread; for scripts, a guess."""
    row = plan.n_rows * DTYPES[job.dtype].itemsize
    row_ps = [
        LEAST_PS + plan.system.n_sips * PS_PER_SIP + n_elem * row * PS_PER_BYTE for n_elem in job.n_elems or (1024,)
    ]
    return sum(row_ps) * (job.warmup + job.iters)


def _is_beyond(fault: Fault, limit_ps: int | None) -> bool:
    """Whether a fault at a simulated time is after ``limit_ps``; faults of hosts and the launcher have wall times."""
    is_simulated = fault.kind not in (*HOST_KINDS, "launcher")
    return is_simulated and limit_ps is not None and fault.at_ps >= limit_ps


def _parsed(spec: str) -> Fault | RandomFaults:
    try:
        return parse_fault(spec)
    except BadFault as error:
        raise ConfigError(f"--fault {error}") from None


def _check_address(address: str) -> None:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        with socket.socket(family) as probe:
            probe.bind((address, 0))
    except OSError as error:
        reason = f"{error.strerror or error}; give an address of this machine"
        raise ConfigError(f"--bind {address}: cannot listen on this address: {reason}") from None


def unfired_faults(options: Options, ends_ps: Mapping[int, int]) -> list[str]:
    """Return a line for each SIP fault that was too late. ``ends_ps``: by rank, the end in ps of a successful run.

    The engine reports late faults of the broker, the launcher and hosts.
    """
    found = []
    for spec in options.faults:
        fault = _parsed(spec)
        if isinstance(fault, Fault) and fault.at_ps >= ends_ps.get(fault.rank, fault.at_ps + 1):
            found.append(
                f"fault {spec} was not injected: rank {fault.rank} ended at {format_time_ps(ends_ps[fault.rank])}"
            )
    return found


def users_error(error: BaseException) -> ConfigError | None:
    """Return ``error`` as one line with the line of code, if a user's module that defines a part of the run raised it.

    The result is None if the error is the simulator's.
    """
    users = [(frame, line) for frame, line in traceback.walk_tb(error.__traceback__) if _is_users(frame)]
    if not users:
        return None
    frame, line = users[-1]
    code = frame.f_code
    return ConfigError(f"{code.co_filename}:{line}: {code.co_name} raised {' '.join(error_text(error).split())}")


def _is_users(frame: FrameType) -> bool:
    module = frame.f_globals.get("__name__", "")
    is_shared = module.partition(".")[0] in SHARED_PACKAGES
    return is_definer(module) and not is_shared and not frame.f_code.co_filename.startswith(INSTALLED)
