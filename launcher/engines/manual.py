"""Engine ``manual``: the broker runs on this host; users start each SIP by hand, with a ticket file."""

import os
from pathlib import Path

import msgspec

from broker.mail.base import JOIN_TIMEOUT_S
from broker.security import JobKeys
from launcher.hosts.bootstrap import launcher_address, tcp
from launcher.hosts.pool import HostPool
from launcher.hosts.run_loop import run_processes
from launcher.options import ENGINES
from launcher.processes.fork_server import ServerCommand, StartProcess, process_name
from launcher.processes.ticket import Ticket, write_private
from launcher.report.outcome import Outcome
from launcher.supervise.facts import Fact
from launcher.supervise.run import Run
from launcher.supervise.signals import StopSignals
from launcher.supervise.stall import log
from sipsim.core.errors import ConfigError
from sipsim.core.files import HINT, Folder, Unsafe

FLAG = "--engine manual"
TICKETS = "AHBM_TICKETS"


@ENGINES.register("manual")
def run_manually(run: Run, signals: StopSignals) -> Outcome:
    """SIPs that are started by hand, with tickets in the folder AHBM_TICKETS (see ahbm-broker)."""
    path = os.environ.get(TICKETS)
    if not path:
        raise ConfigError(f"{FLAG} needs {TICKETS}, a folder for the tickets; ahbm-broker --tickets DIR sets it")
    options = run.options
    if options.mail != "zmq" or options.max_restarts or options.hosts:
        raise ConfigError(f"{FLAG}: SIPs are started by hand; leave --mail, --max-restarts and --hosts out")
    folder = Path(path)
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        Folder(folder).close()
    except Unsafe as error:
        raise ConfigError(f"--tickets {folder}: {error.strerror}; {HINT}") from None
    except OSError as error:
        raise ConfigError(f"--tickets {folder}: cannot be created: {error.strerror}; name another folder") from None
    return run_processes(run, signals, lambda run, _: ManualHosts(run, folder))


class ManualHosts(HostPool):
    """Host pool of manually started SIPs, whose hosts are unknown."""

    can_signal = False

    def __init__(self, run: Run, folder: Path) -> None:
        # The broker listens before the tickets are written, and answers each SIP at once: a short timeout is enough.
        self._answer_s = min(run.options.join_timeout_s, JOIN_TIMEOUT_S)
        self.keys = JobKeys.fresh(run.plan.system.n_sips)
        self.broker_endpoint = tcp(launcher_address([], run.options.bind or ""))
        self._job = run.job
        self._plan = run.plan
        self._folder = folder
        self._missing = set(range(run.plan.system.n_sips))
        self._written: list[Path] = []

    def sip_endpoint(self, host: int, rank: int, incarnation: int) -> str:
        return ""

    def order(self, host: int, command: ServerCommand) -> None:
        """Write the ticket of a process that the user must start; ignore signals, which cannot reach the process."""
        if not isinstance(command, StartProcess):
            return
        path = self._folder.absolute() / f"{process_name(command.rank)}.ticket"
        spec = msgspec.structs.replace(command.order["spec"], join_timeout_s=self._answer_s)
        write_private(path, Ticket.of(self._plan, self._job, spec).text())
        self._written.append(path)
        if len(self._written) == self._plan.system.n_sips:
            log(f"the broker listens at {spec.broker}; start each rank, on any machine that has its ticket:")
            for each in self._written:
                log(f"  ahbm-sip {each}")

    def on_missing(self, ranks: list[int]) -> None:
        """Print which ranks have joined since the last call, and which ranks are missing."""
        joined = sorted(self._missing - set(ranks))
        self._missing &= set(ranks)
        if joined and self._missing:
            log(f"joined ranks: {_list(joined)}; missing ranks: {_list(sorted(self._missing))}")

    def close(self, well: bool) -> list[Fact]:
        """Remove the tickets."""
        for path in self._written:
            path.unlink(missing_ok=True)
        return []


def _list(ranks: list[int]) -> str:
    return ", ".join(map(str, ranks))
