"""One process for each SIP and one for the broker, on this machine, over sockets in a private folder."""

from launcher.attention import Attention
from launcher.engines.base import ENGINES, Request
from launcher.hosts.here import Here
from launcher.hosts.loop import run_processes
from launcher.outcome import Outcome


@ENGINES.register("local")
def run_local(request: Request, attention: Attention) -> Outcome:
    """One process a SIP, one for the broker, on this machine."""
    return run_processes(request, attention, Here)
