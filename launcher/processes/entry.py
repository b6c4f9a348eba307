"""Process entry of the fork servers: runs the broker or a SIP in a forked process.

The launcher's server inherits the plan through fork. An agent's server gets a ticket, and makes the plan from this
ticket once, before the first fork. Orders are plain data.
"""

import os
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from broker.mail.base import SILENCE_S
from broker.process import run_broker
from broker.security import BrokerKeys
from launcher.processes.fork_server import SendText, process_name
from launcher.processes.this_host import check_files
from launcher.processes.ticket import Ticket
from sipsim.chips.api.run_plan import RunPlan
from sipsim.core.errors import ConfigError
from sipsim.node.process import run_sip
from sipsim.node.sip_node import SipProcessSpec
from sipsim.records.job import Job

OWN_NODE_RANK = "AHBM_NODE_RANK"
NODE_RANKS = (OWN_NODE_RANK, "SLURM_NODEID", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "JOB_COMPLETION_INDEX")
"""Environment variables with a node rank: AHBM's, Slurm's, Open MPI's, PMI's (MPICH), a Kubernetes Indexed Job's."""

MAX_DIGITS = 9


def rank_environment(
    spec: SipProcessSpec, world_size: int, node_rank: int, run_id: str, local_ranks: Sequence[int]
) -> dict[str, str]:
    """Return a rank's environment: AHBM's variables and torchrun's. ``local_ranks``: all ranks on the rank's host."""
    rank, size = str(spec.rank), str(world_size)
    local_rank, incarnation = str(local_ranks.index(spec.rank)), str(spec.incarnation)
    return {
        "AHBM_RANK": rank,
        "AHBM_WORLD_SIZE": size,
        "AHBM_LOCAL_RANK": local_rank,
        OWN_NODE_RANK: str(node_rank),
        "AHBM_RUN_ID": run_id,
        "AHBM_INCARNATION": incarnation,
        "RANK": rank,
        "WORLD_SIZE": size,
        "LOCAL_RANK": local_rank,
        "LOCAL_WORLD_SIZE": str(len(local_ranks)),
        "TORCHELASTIC_RESTART_COUNT": incarnation,
    }


def node_rank(environ: Mapping[str, str], n_hosts: int, given: int | None = None, names: tuple[str, ...] = ()) -> int:
    """Return this host's node rank. ``given``: the bootstrap's node rank; ``names``: variables that may hold the rank.

    Raises:
        ConfigError: if no source has a node rank, two sources disagree, or the rank is not below ``n_hosts``.
    """
    names = (OWN_NODE_RANK, *names) if names or given is not None else NODE_RANKS
    found = {name: environ[name] for name in names if environ.get(name, "")}
    if given is not None:
        found["the bootstrap"] = str(given)
    if not found:
        what = f"no node rank: none of {', '.join(names)} is set"
        raise ConfigError(f"{what}; set {OWN_NODE_RANK} to 0 on the first host, 1 on the second, and so on")
    for name, text in found.items():
        if not (text.isascii() and text.isdigit()) or len(text) > MAX_DIGITS or int(text) >= n_hosts:
            raise ConfigError(f"{name}={text}: must be a node rank from 0 to {n_hosts - 1}")
    if len({int(text) for text in found.values()}) > 1:
        what = ", ".join(f"{name}={text}" for name, text in found.items())
        raise ConfigError(f"{what}: these disagree on the node rank; unset the wrong variables")
    return int(next(iter(found.values())))


def sip_order(spec: SipProcessSpec, environ: dict[str, str]) -> dict[str, Any]:
    """Return the order that starts a SIP; ``environ`` is added to the environment of the SIP's process."""
    return {"spec": spec, "environ": environ}


def broker_order(
    endpoint: str,
    shared_cpu_seed: int,
    keys: BrokerKeys | None = None,
    silence_s: float | None = SILENCE_S,
    limit_ps: int | None = None,
) -> dict[str, Any]:
    """Return the order that starts the broker. ``limit_ps``: limit of simulated time in ps, None if there is none."""
    return {
        "endpoint": endpoint,
        "shared_cpu_seed": shared_cpu_seed,
        "keys": keys,
        "silence_s": silence_s,
        "limit_ps": limit_ps,
    }


class SimProcessEntry:
    """Process entry of one run. If no plan is given, ``set_up`` must be called before ``run``."""

    def __init__(self, plan: RunPlan | None = None, job: Job | None = None) -> None:
        self._plan = plan
        self._job = job

    def set_up(self, ticket: str) -> None:
        """Make the plan from the text of a ticket.

        Raises:
            ConfigError: if the plan cannot be made. An exception of the algorithm's module is passed on.
        """
        self._plan, self._job = Ticket.from_text(ticket).prepare()
        check_files(self._plan, sips=True, broker=False)

    def run(self, rank: int | None, order: dict[str, Any], send: SendText) -> int:
        """Run the broker (``rank`` None) or a SIP, and return the exit code of the process."""
        if self._plan is None or self._job is None:
            raise RuntimeError(f"{process_name(rank)} was ordered to start before set-up")
        if rank is None:
            return self._broker(self._plan, order, send)
        os.environ.update(order["environ"])
        return run_sip(msgspec.convert(order["spec"], SipProcessSpec), self._plan, self._job, send)

    def _broker(self, plan: RunPlan, order: dict[str, Any], send: SendText) -> int:
        return run_broker(
            order["endpoint"],
            plan.system.n_sips,
            plan.channels,
            plan.reactions_ps,
            order["shared_cpu_seed"],
            msgspec.convert(order["keys"], BrokerKeys | None),
            order["silence_s"],
            send,
            order["limit_ps"],
        )
