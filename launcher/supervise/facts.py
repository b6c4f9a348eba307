"""Facts for a run's supervisor, besides the broker's messages, and the commands that it returns. Plain data."""

import signal
from collections.abc import Mapping
from typing import NamedTuple

from broker.wire import Message
from launcher.processes.fork_server import ServerEvent
from launcher.processes.this_host import ProcessState
from launcher.report.outcome import FoundFacts, RunError
from sipsim.records.dump import SipDump


class HostSpec(NamedTuple):
    """A requested host. ``name``: for messages; empty if all SIPs run on this host.

    ``is_named``: whether ``name`` is the real host name; if not, the agent reports that.
    """

    name: str = ""
    slots: int | None = None
    is_named: bool = True


class HostJoined(NamedTuple):
    """A host is ready to start SIPs. ``name``: its host name."""

    host: int
    name: str = ""


class HostGone(NamedTuple):
    """A host or its agent is lost. ``kind``: that of the failure. ``can_return``: another agent can start there."""

    host: int
    kind: str
    why: str
    can_return: bool = False


LAUNCHER_HOST = -1
"""The index of the launcher's host, where the broker runs."""


class ProcessEvent(NamedTuple):
    """An event of the fork server on a host."""

    host: int
    event: ServerEvent


class ServerGone(NamedTuple):
    """The fork server on the launcher's host has exited, and with it the broker."""

    pid: int
    status: int


class BrokerListens(NamedTuple):
    """The broker's endpoint is known."""


class Sampled(NamedTuple):
    """The latest samples of processes, by rank (None: the broker); processes without a sample are left out."""

    states: Mapping[int | None, ProcessState]


class Position(NamedTuple):
    """Reply to ``RequestPosition``: the position of the code of a rank; ``dump`` is None without an answer, ``why``."""

    rank: int
    dump: SipDump | None
    why: str = ""


class Tick(NamedTuple):
    """Time has passed."""


class Start(NamedTuple):
    """Start this incarnation of a rank on a host."""

    host: int
    rank: int
    incarnation: int


class Kill(NamedTuple):
    """Kill the process of a rank."""

    host: int
    rank: int


class RequestPosition(NamedTuple):
    """Request the position of a rank's code from its process; the reply is ``Position``."""

    rank: int


class Revive(NamedTuple):
    """Start another agent on a host."""

    host: int


class Fail(NamedTuple):
    """The run has failed. ``with_log``: report the last log lines of the error's rank, or else of the broker."""

    error: RunError
    with_log: bool = False


class LogLine(NamedTuple):
    """A line for standard error."""

    text: str


Fact = HostJoined | HostGone | ProcessEvent | ServerGone | BrokerListens | Sampled | Position | Tick
Command = Start | Kill | RequestPosition | Revive | Message | Fail | LogLine
"""A ``Message`` is sent to the broker."""


def describe_exit(status: int) -> str:
    """Return how a process exited, as text; ``status`` as in :class:`launcher.processes.fork_server.ProcessExited`."""
    if status < 0:
        known = {s.value: s.name for s in signal.Signals}
        return f"was killed by {known.get(-status, f'signal {-status}')}"
    return f"ended with exit code {status}" + ("" if status else " before the run was over")


def status_facts(status: int) -> FoundFacts:
    """Return how a process exited, for the result file."""
    if status < 0:
        known = {s.value: s.name for s in signal.Signals}
        return {"signal": known.get(-status, str(-status))}
    return {"exit_code": status}
