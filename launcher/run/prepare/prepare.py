"""From options to a plan and a job, everything checked; nothing is started here."""

import os
import sys
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

from msgspec import to_builtins

from launcher.options.options import ALGORITHM, DEFAULT_SIZE, Options, Prepared
from sipsim.chips.ahbm.collectives.catalog.catalog import Catalog
from sipsim.chips.ahbm.collectives.catalog.select import ALL, AUTO
from sipsim.chips.api.chip import kind_of, planned
from sipsim.chips.config.load import load
from sipsim.config.load.override import Override, parse_set
from sipsim.config.schema.model import Resolved
from sipsim.config.yaml import one_line
from sipsim.core.errors import ConfigError
from sipsim.node.faults.plan import BadFault, parse_outage
from sipsim.node.script import check_script, find_script
from sipsim.records.job import Job, JobRequest


def resolve(options: Options | Namespace) -> Resolved:
    """The config files with every flag applied.

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
        # The flag is of that name, so the user has set no key of another.
        name = _one_algorithm(options.algorithm)
        flag = f"--algorithm {name}: {ALGORITHM}: "
        text = str(error).replace(flag, "--algorithm: ")
        if text.startswith("--algorithm: unknown"):
            rest = [each for each in overrides if ALGORITHM not in each.paths()]
            catalog = Catalog(load(options.config, options.ccl, rest, options.variant))
            text = f"--algorithm: {catalog.unknown(str(name), getattr(options, 'collective', None))}"
        raise ConfigError(text) from None


def overrides_of(options: Options | Namespace) -> list[Override]:
    """What its flags change in the config.

    Raises:
        ConfigError: for a ``--set`` that cannot be read.
    """
    settings = [parse_set(text) for text in options.settings]
    flags = (
        ("--sips", "system.sips.count", options.sips),
        ("--topology", "system.sips.topology", options.topology),
        ("--chip", "system.chip", options.chip),
        ("--shape", "system.sips.shape", list(options.shape) if options.shape else None),
        ("--link", "system.sips.link", options.link),
        ("--algorithm", ALGORITHM, _one_algorithm(options.algorithm)),
    )
    known = {path: each.origin for each in settings for path in each.paths()}
    for flag, path, value in flags:
        if value is not None and path in known:
            raise ConfigError(f"{known[path]}: {flag} {_text(value)} sets {path}, too; leave one of them out")
    given = [Override(path, value, f"{flag} {_text(value)}") for flag, path, value in flags if value is not None]
    return [*_cluster_overrides(options), *settings, *given]


def _cluster_overrides(options: Options | Namespace) -> list[Override]:
    """The links of a cluster's file stand in the config themselves, so that no host needs the file."""
    if options.cluster is None:
        return []
    from sipsim.topology.tenstorrent import BLACKHOLE, WORMHOLE
    from sipsim.topology.umd import read_cluster

    origin = one_line(f"--cluster {options.cluster}")
    if options.topology is not None:
        raise ConfigError(f"--topology {options.topology}: {origin} says how SIPs are joined; leave one of them out")
    cluster = read_cluster(options.cluster)
    # The guide's files name no architecture, and are of Wormhole.
    values, chip = cluster.sips(), cluster.chip or options.chip or WORMHOLE
    if options.sips not in (None, values["count"]):
        raise ConfigError(f"--sips {options.sips}: {origin} has {values['count']} chips; leave --sips out")
    if options.chip in ({WORMHOLE, BLACKHOLE} - {chip}):
        raise ConfigError(f"--chip {options.chip}: the chips of {origin} are {chip}; leave --chip out")
    return [Override("system.sips", values, origin), Override("system.chip", chip, origin)]


def _with_outages(resolved: Resolved, specs: Sequence[str]) -> Override:
    """The outages of the config and those of ``--fault``."""
    try:
        more = [parse_outage(spec) for spec in specs]
    except BadFault as error:
        raise ConfigError(f"--fault {error}") from None
    known = to_builtins(resolved.topology.system.sips.outages)
    return Override("system.sips.outages", [*known, *more], f"--fault {' --fault '.join(specs)}")


def _with_jitter(resolved: Resolved, seed: int) -> Override:
    """The seed of chips that have jitter."""
    if "jitter" not in kind_of(resolved).Params.__struct_fields__:
        chip = resolved.topology.system.chip
        raise ConfigError(f"--jitter {seed}: chip {chip} has no jitter; chips of tiles do, such as --chip wormhole")
    return Override("system.chip_params.jitter.seed", seed, f"--jitter {seed}")


def prepare(options: Options) -> Prepared:
    """A plan and a job that can run.

    Raises:
        ConfigError: for everything that is known to fail before it starts.
    """
    resolved = resolve(options)
    kind = kind_of(resolved)
    if options.trace_ccl is not None and not kind.traces:
        chip = resolved.topology.system.chip
        raise ConfigError(f"--trace-ccl: chip {chip} traces no collectives; leave it out, or record with --oplog FILE")
    plan = planned(resolved)
    if options.script is not None:
        check_script(find_script(options.script, options.as_module))
        return Prepared(plan, _script_job(options), options.engine)
    job = kind.job(_request(options), plan)
    with resolved.reads.apart():
        kind.check_overrides_of_job(job, plan, overrides_of(options))
    return Prepared(plan, job, options.engine)


def describe(prepared: Prepared) -> str:
    """The text of ``--dry-run``."""
    system, job = prepared.plan.system, prepared.job
    kind = kind_of(system.resolved)
    notes = "".join(f"{note}; " for note in kind.notes(job, prepared.plan))
    what = job.script or kind.describe_job(job)
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
        explain=options.explain,
        oplog=options.oplog is not None,
    )


def _request(options: Options) -> JobRequest:
    return JobRequest(
        collective=options.collective,
        sizes=options.sizes,
        n_elems=options.n_elems,
        size_source=options.size_source,
        has_default_size=options.size_source == DEFAULT_SIZE,
        dtype=options.dtype,
        op=options.op,
        iters=options.iters,
        warmup=options.warmup,
        seed=options.seed,
        verify=options.verify_data,
        check_invariants=options.check_invariants,
        trace=options.trace_ccl is not None,
        explain=options.explain,
        oplog=options.oplog is not None,
        algorithms=options.algorithm or (),
        group=options.group,
        root=options.root,
        layout=options.layout,
        in_place=options.in_place,
    )


def _one_algorithm(names: tuple[str, ...] | None) -> str | None:
    """The entry of ``ccl.yaml`` that a flag names, if it names one and only one."""
    return names[0] if names is not None and len(names) == 1 and names[0] not in (AUTO, ALL) else None


def _let_import_from(*folders: Path) -> None:
    """Modules of a user may lie here or beside the file that names them; installed packages come first."""
    sys.path += [str(folder) for folder in folders if str(folder) not in sys.path]


def _text(value: object) -> str:
    return "x".join(map(str, value)) if isinstance(value, list) else str(value)
