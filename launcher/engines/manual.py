"""SIPs that people start by hand, each with a ticket: the broker here, and one file a rank for whoever starts it."""

import os
from pathlib import Path
from typing import Any

import msgspec

from broker.security.keys import JobKeys
from launcher.engines.base import ENGINES, Request
from launcher.hosts.bootstrap import launcher_address, tcp
from launcher.hosts.run_loop import run_processes
from launcher.processes.process_state import ProcessState
from launcher.processes.ticket import Ticket, write_private
from launcher.report.outcome import Outcome
from launcher.supervise.facts import Fact, HostJoined, HostSpec
from launcher.supervise.signals import StopSignals
from launcher.supervise.watchdog import log
from sipsim.errors import ConfigError
from sipsim.node.process_spec import SipProcessSpec

WHY = "--engine hand"
TICKETS = "AHBM_TICKETS"
PATIENCE_S = 3600.0
"""People are slower than processes."""


@ENGINES.register("hand")
def run_by_hand(request: Request, signals: StopSignals) -> Outcome:
    """SIPs that are started by hand with tickets, which the folder AHBM_TICKETS gets (see ahbm-broker)."""
    told = os.environ.get(TICKETS)
    if not told:
        raise ConfigError(f"{WHY} needs {TICKETS}, a folder for the tickets; ahbm-broker --tickets DIR sets it")
    if request.mail != "zmq" or request.max_restarts or request.hosts:
        raise ConfigError(f"{WHY}: --mail, --max-restarts and --hosts have no meaning when SIPs are started by hand")
    if request.job.recorded_io_dir or request.job.trace_dir:
        what = "what scripts compute and traces stay where SIPs run"
        raise ConfigError(f"{WHY}: {what}; give --no-verify-data for a script, and no --trace-ccl")
    folder = Path(told)
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"--tickets {folder}: cannot be made: {error.strerror}") from None
    patient = request._replace(join_timeout_s=max(request.join_timeout_s, PATIENCE_S))
    # Who has a ticket has a broker that listens already: only people are waited for.
    return run_processes(patient, signals, lambda patient, _here: ManualHosts(patient, folder, request.join_timeout_s))


class ManualHosts:
    """A crew of nobody that is known here; see ``launcher.hosts.base.HostPool``.

    ``answer_s``: how long the broker may take to answer a SIP.
    """

    def __init__(self, request: Request, folder: Path, answer_s: float) -> None:
        self._answer_s = answer_s
        self.specs = [HostSpec()]
        self.shared_cpu_seed = None
        self.is_here = False
        self.trouble = ""
        self.process_states: dict[str, ProcessState] = {}
        self.pollables: list[Any] = []
        self.unsent = False
        self.keys: JobKeys | None = JobKeys.fresh(request.plan.system.n_sips)
        self.broker_endpoint = tcp(launcher_address([], request.bind))
        self._job = request.job
        self._plan = request.plan
        self._folder = folder
        self._told = False
        self._missing = set(range(request.plan.system.n_sips))
        self._written: list[Path] = []

    def facts(self) -> list[Fact]:
        """There is a host, whatever it is."""
        told, self._told = self._told, True
        return [] if told else [HostJoined(0)]

    def seat_endpoint(self, host: int, rank: int, incarnation: int) -> str:
        """It finds that out by itself."""
        return ""

    def folder(self, host: int) -> str:
        """Nobody is started again."""
        return ""

    def start(self, host: int, name: str, incarnation: int, order: dict[str, Any]) -> None:
        """Write the ticket."""
        path = self._folder.absolute() / f"{name}.ticket"
        spec = msgspec.structs.replace(msgspec.convert(order["spec"], SipProcessSpec), join_timeout_s=self._answer_s)
        write_private(path, Ticket.of(self._plan, self._job, spec).text())
        self._written.append(path)
        if len(self._written) == self._plan.system.n_sips:
            log(f"the broker listens at {spec.broker}; start each rank, on any machine that has its ticket:")
            for each in self._written:
                log(f"  ahbm-sip {each}")

    def kill(self, host: int, name: str) -> None:
        """That is for those who started it."""

    def revive(self, host: int) -> None:
        """There is no agent."""

    def inject_fault(self, kind: str, host: str) -> bool:
        """There is no agent."""
        return False

    def on_missing(self, ranks: list[int]) -> None:
        """People like to know whom they have started."""
        joined = sorted(self._missing - set(ranks))
        self._missing &= set(ranks)
        if joined and self._missing:
            log(f"joined: {_list(joined)}; missing: {_list(sorted(self._missing))}")

    def close(self, well: bool) -> None:
        """Tickets are of no use any more."""
        for path in self._written:
            path.unlink(missing_ok=True)


def _list(ranks: list[int]) -> str:
    return ", ".join(map(str, ranks))
