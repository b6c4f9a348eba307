"""One process for each SIP and one for the broker, on this machine, over sockets in a private folder."""

from launcher.engines.base import ENGINES
from launcher.hosts.pool.local_host import LocalHost
from launcher.hosts.run_loop import run_processes
from launcher.report.outcome.outcome import Outcome
from launcher.supervise.request import Request
from launcher.supervise.signals.signals import StopSignals


@ENGINES.register("local")
def run_local(request: Request, signals: StopSignals) -> Outcome:
    """One process a SIP, one for the broker, on this machine."""
    return run_processes(request, signals, LocalHost)
