"""What the processes of a run do: the broker or a SIP. The entry of every fork server, local or of an agent.

The launcher's server inherits the plan through fork. An agent's server gets a ticket, from which it makes the plan
once; its SIPs are forks of it. Orders are plain data (``sip_order``, ``broker_order``).
"""

import os
from typing import Any

import msgspec

from broker.mail.base import SILENCE_S
from broker.process import run_broker
from broker.security.keys import BrokerKeys
from launcher.processes.entry.names import BROKER_NAME
from launcher.processes.fork_server.fork_server import SendText
from launcher.processes.this_host.limits import check_files
from launcher.processes.ticket import Ticket
from sipsim.chips.api.run_plan.base import RunPlan
from sipsim.node.process import run_sip
from sipsim.node.sip_node.process_spec import SipProcessSpec
from sipsim.records.job import Job


def sip_order(spec: SipProcessSpec, environ: dict[str, str]) -> dict[str, Any]:
    """The order that starts a SIP; ``environ`` is added to its environment."""
    return {"spec": msgspec.to_builtins(spec), "environ": environ}


def broker_order(
    endpoint: str,
    shared_cpu_seed: int,
    keys: BrokerKeys | None = None,
    silence_s: float | None = SILENCE_S,
    limit_ps: int | None = None,
) -> dict[str, Any]:
    """The order that starts the broker; it reports its endpoint when it listens. ``limit_ps``: of simulated time."""
    return {
        "endpoint": endpoint,
        "shared_cpu_seed": shared_cpu_seed,
        "keys": None if keys is None else msgspec.to_builtins(keys),
        "silence_s": silence_s,
        "limit_ps": limit_ps,
    }


class SimProcessEntry:
    """The entry of one run. Without a plan ``set_up`` must come first."""

    def __init__(self, plan: RunPlan | None = None, job: Job | None = None) -> None:
        self._plan = plan
        self._job = job

    def set_up(self, ticket: str) -> None:
        """Make the plan.

        Raises:
            ConfigError: when it cannot be made; also whatever the algorithm's module raises.
        """
        self._plan, self._job = Ticket.from_text(ticket).prepare()
        check_files(self._plan, sips=True, broker=False)

    def run(self, name: str, order: dict[str, Any], send: SendText) -> int:
        """Run the broker or a SIP; returns its exit code."""
        if self._plan is None or self._job is None:
            raise RuntimeError(f"{name} was ordered to start before set-up")
        if name == BROKER_NAME:
            return self._broker(self._plan, order, send)
        os.environ.update(order["environ"])
        return run_sip(msgspec.convert(order["spec"], SipProcessSpec), self._plan, self._job, send)

    def _broker(self, plan: RunPlan, order: dict[str, Any], send: SendText) -> int:
        keys = None if order["keys"] is None else msgspec.convert(order["keys"], BrokerKeys)
        return run_broker(
            order["endpoint"],
            plan.system.n_sips,
            plan.channels,
            plan.reactions_ps,
            order["shared_cpu_seed"],
            keys,
            order["silence_s"],
            send,
            order["limit_ps"],
        )
