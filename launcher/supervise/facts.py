"""Facts that a run's supervisor handles, besides the broker's messages, and the supervisor's commands. Plain data."""

import signal
from collections.abc import Mapping
from typing import NamedTuple

from broker.wire import Message
from launcher.processes.fork_server import ServerEvent
from launcher.processes.this_host import ProcessState
from launcher.report.outcome import FoundFacts, RunError
from sipsim.records.dump import SipDump


class HostSpec(NamedTuple):
    """A requested host. ``name``: name in messages; empty if all SIPs run on this host. ``slots``: maximum of ranks.

    ``is_named``: whether ``name`` is the real host name; if not, the agent reports the real name.
    """

    name: str = ""
    slots: int | None = None
    is_named: bool = True


class HostJoined(NamedTuple):
    """A host is ready to start SIPs. ``name``: the real host name; empty if already known."""

    host: int
    name: str = ""


class HostGone(NamedTuple):
    """A host or its agent is lost. ``kind``: kind of the failure. ``can_return``: whether another agent can start."""

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
    """Processes were sampled. ``states``: the samples that succeeded, by rank; the key None is the broker."""

    states: Mapping[int | None, ProcessState]


class Position(NamedTuple):
    """Reply to ``RequestPosition``: the rank's position in its code. ``dump``: None if unknown; ``why``: the reason."""

    rank: int
    dump: SipDump | None
    why: str = ""


class Tick(NamedTuple):
    """One turn of the run loop has passed, so deadlines must be checked."""


class Start(NamedTuple):
    """Command: start incarnation ``incarnation`` of a rank on a host."""

    host: int
    rank: int
    incarnation: int


class Kill(NamedTuple):
    """Command: kill the process of a rank on a host."""

    host: int
    rank: int


class RequestPosition(NamedTuple):
    """Command: request from a rank's process its position in its code; the reply is ``Position``."""

    rank: int


class Revive(NamedTuple):
    """Command: start another agent on a host."""

    host: int


class Fail(NamedTuple):
    """Command: let the run fail. ``with_log``: add the last log lines of the error's rank, or of the broker if None."""

    error: RunError
    with_log: bool = False


class LogLine(NamedTuple):
    """Command: print a line on standard error."""

    text: str


Fact = HostJoined | HostGone | ProcessEvent | ServerGone | BrokerListens | Sampled | Position | Tick
Command = Start | Kill | RequestPosition | Revive | Message | Fail | LogLine
"""Command of the supervisor; a command that is a ``Message`` is sent to the broker."""


def describe_exit(status: int) -> str:
    """Return a text for an exit; ``status`` as in :class:`launcher.processes.fork_server.ProcessExited`."""
    if status < 0:
        names = {s.value: s.name for s in signal.Signals}
        return f"was killed by {names.get(-status, f'signal {-status}')}"
    return f"ended with exit code {status}" + ("" if status else " before the run was over")


def status_facts(status: int) -> FoundFacts:
    """Return the signal or exit code of an exit, as keys of the result file; ``status`` as in ``describe_exit``."""
    if status < 0:
        names = {s.value: s.name for s in signal.Signals}
        return {"signal": names.get(-status, str(-status))}
    return {"exit_code": status}
