"""Checks that flags suit each other, the engine and the system, before anything starts; one line for each mistake."""

import os
import socket
from collections.abc import Mapping

from broker.mail.kinds import is_seeded
from launcher.options.options import Options, given_options
from launcher.supervise.fault_injector import CUT_PROGRAM
from sipsim.chips.ahbm.collectives.catalog.select import ALL
from sipsim.chips.api.chip import kind_of
from sipsim.chips.api.run_plan.base import RunPlan
from sipsim.config.schema.model import Resolved
from sipsim.core.dtypes import DTYPES
from sipsim.core.errors import ConfigError
from sipsim.core.units import LONGEST_TIME_S, PS_PER_S, format_exact_time_ps, format_time_ps
from sipsim.node.faults.plan import HOST_KINDS, BadFault, Fault, FaultPlan, RandomFaults, parse_fault
from sipsim.records.job import Job

PS_PER_BYTE = 17
PS_PER_SIP = 300_000
LEAST_PS = 1_000_000
LONGEST_PS = LONGEST_TIME_S * PS_PER_S
"""A collective takes about the sum of these terms; random faults are spread over it."""
STAYS_THERE = "what ranks record stays on their machines when they are started by hand (ahbm-broker, --engine manual)"


def check_flags(options: Options) -> None:
    """Check the flags against each other and the engine.

    Raises:
        ConfigError: with the flags and an alternative.
    """
    if len(options.to_standard_output) > 1:
        flags = " and ".join(f"{flag} -" for flag in options.to_standard_output)
        raise ConfigError(f"{flags}: standard output takes one of them; name a file for the others")
    chosen = {
        "--hosts": bool(options.hosts),
        "--bind": options.bind is not None,
        "--max-restarts": options.max_restarts > 0,
        "--run-dir": options.run_dir is not None,
        "--fault": bool(options.faults),
        "--tee": options.tee is not None,
    }
    for flag, is_chosen in chosen.items():
        if is_chosen and options.engine == "inproc":
            raise ConfigError(f"{flag}: --engine inproc has no processes of SIPs; use another engine, such as local")
        if is_chosen and options.engine == "local" and flag in ("--hosts", "--bind"):
            raise ConfigError(
                f"{flag}: --engine local (the default) has this host only; give one with hosts, such as --engine ssh"
            )
    if is_seeded(options.mail) and options.engine != "inproc":
        raise ConfigError(f"--mail {options.mail}: is mail within one process; give --engine inproc with it")
    _check_records(options)
    if options.script is not None and (len(options.algorithm or ()) > 1 or options.algorithm == (ALL,)):
        names = ",".join(options.algorithm or ())
        raise ConfigError(f"--algorithm {names}: a script names an algorithm in each call; give one here, or none")
    for spec in options.faults:
        fault = _parsed(spec)
        if isinstance(fault, Fault) and fault.kind in HOST_KINDS and options.engine == "local":
            one_host = "--engine local (the default) has this host only; give one with hosts, such as --engine ssh"
            raise ConfigError(f"--fault {spec}: {one_host}")
        if isinstance(fault, Fault) and _is_beyond(fault, options.max_sim_ps):
            at = format_exact_time_ps(options.max_sim_ps or 0)
            raise ConfigError(f"--fault {spec}: the run stops before, at --max-sim-time {at}; name an earlier time")
        if isinstance(fault, Fault) and fault.kind == "cut" and not os.environ.get(CUT_PROGRAM):
            raise ConfigError(
                f"--fault {spec}: {CUT_PROGRAM} must name a program that cuts off the host that it is given"
            )
    if options.bind is not None:
        _check_address(options.bind)


def _check_records(options: Options) -> None:
    """With SIPs that are started by hand, files that they leave stay where they are."""
    if options.engine != "manual":
        return
    needed = {
        "--explain": (options.explain, "leave it out"),
        "--trace-ccl": (options.trace_ccl is not None, "leave it out"),
        "--oplog": (options.oplog is not None, "leave it out"),
    }
    for flag, (is_chosen, instead) in needed.items():
        if is_chosen:
            raise ConfigError(f"{flag}: {STAYS_THERE}; {instead}")


def check_verification(options: Options, argv: list[str], resolved: Resolved) -> None:
    """Check the flags of verification, which some chips have not.

    Raises:
        ConfigError: with the flag and what to do.
    """
    if kind_of(resolved).verifies:
        if options.engine == "manual" and options.script is not None and options.verify_data:
            raise ConfigError(f"--verify-data: {STAYS_THERE}; give --no-verify-data with a script")
        return
    given, chip = given_options(argv), resolved.topology.system.chip
    if "verify_data" in given and options.verify_data:
        what = f"chip {chip} has no second pass, and no collectives whose results are compared"
        raise ConfigError(f"--verify-data: {what}; leave it out, and check the data in the script")
    if "check_invariants" in given:
        raise ConfigError(f"--check-invariants: chip {chip} has no IPCQ queues to check; leave it out")


def unverified(options: Options, resolved: Resolved) -> list[str]:
    """A line where ``--no-verify-data`` leaves nothing out."""
    if options.verify_data or kind_of(resolved).verifies:
        return []
    return [f"--no-verify-data leaves nothing out: chip {resolved.topology.system.chip} has no second pass"]


def check_system(options: Options, n_sips: int) -> None:
    """Check that ranks in flags exist, and that the hosts have slots for all SIPs.

    Raises:
        ConfigError: with the flag and what is allowed.
    """
    for rank in options.tee or ():
        if rank >= n_sips:
            raise ConfigError(f"--tee {rank}: there is no SIP {rank}; ranks are 0 to {n_sips - 1}")
    slots = [number for _, number in options.hosts]
    if slots and None not in slots and sum(filter(None, slots)) < n_sips:
        given = ",".join(f"{name}:{number}" for name, number in options.hosts)
        more = "give more, or leave a number out"
        raise ConfigError(f"--hosts {given}: room for {sum(filter(None, slots))} SIPs of {n_sips}; {more}")


def faults_of(options: Options, plan: RunPlan, job: Job) -> tuple[str, ...]:
    """All faults of ``--fault``, with random ones drawn.

    Raises:
        ConfigError: for an impossible one.
    """
    faults: list[Fault] = []
    for spec in options.faults:
        fault = _parsed(spec)
        if isinstance(fault, RandomFaults):
            span = min(span_ps(plan, job), options.max_sim_ps or LONGEST_PS)
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
    """The estimated simulated time of a run; a guess for scripts."""
    row = plan.n_rows * DTYPES[job.dtype].itemsize
    once = [
        LEAST_PS + plan.system.n_sips * PS_PER_SIP + n_elem * row * PS_PER_BYTE for n_elem in job.n_elems or (1024,)
    ]
    return sum(once) * (job.warmup + job.iters)


def _is_beyond(fault: Fault, limit_ps: int | None) -> bool:
    """Whether a fault at a simulated time would never be injected. Those of hosts and launcher have wall times."""
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
        with socket.socket(family) as trial:
            trial.bind((address, 0))
    except OSError as error:
        why = f"{error.strerror or error}; give an address of this machine"
        raise ConfigError(f"--bind {address}: cannot be listened on: {why}") from None


def unfired_faults(options: Options, ends_ps: Mapping[int, int]) -> list[str]:
    """A line for each fault of a SIP that came too late. ``ends_ps``: when each rank of a successful run ended.

    Those of other processes are known to the engine.
    """
    found = []
    for spec in options.faults:
        fault = _parsed(spec)
        if isinstance(fault, Fault) and fault.at_ps >= ends_ps.get(fault.rank, fault.at_ps + 1):
            found.append(
                f"fault {spec} was not injected: rank {fault.rank} ended at {format_time_ps(ends_ps[fault.rank])}"
            )
    return found
