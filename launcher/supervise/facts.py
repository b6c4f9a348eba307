"""What a run's supervisor is told besides the broker's messages, and what it answers. Plain data; decides nothing."""

import signal
from typing import NamedTuple

from broker.wire import Message
from launcher.processes.fork_server import News
from launcher.report.outcome import RunError


class HostSpec(NamedTuple):
    """A host of a run as it was asked for. ``name`` is for people; empty when all run on this one.

    ``is_named``: whether others know it by that name; else its agent tells what it is called.
    """

    name: str = ""
    slots: int | None = None
    is_named: bool = True


class HostJoined(NamedTuple):
    """A host is ready to start SIPs. ``name``: what it calls itself."""

    host: int
    name: str = ""


class HostGone(NamedTuple):
    """A host, or the agent on it, is gone. ``kind`` is the failure's, ``can_return``: another agent may be started."""

    host: int
    kind: str
    why: str
    can_return: bool = False


HERE = -1
"""Where the broker is, whatever the hosts of the SIPs are."""


class ProcessNews(NamedTuple):
    """News of the server on a host."""

    host: int
    news: News


class ServerGone(NamedTuple):
    """The server on the launcher's own host has ended, and with it the broker."""

    pid: int
    status: int


class BrokerListens(NamedTuple):
    """The broker is where SIPs can be told to find it."""


class HostStates(NamedTuple):
    """What processes of ranks do just now, in words."""

    words: dict[int, str]


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


class Revive(NamedTuple):
    """Start another agent on a host."""

    host: int


class Tell(NamedTuple):
    """Tell the broker."""

    message: Message


class Fail(NamedTuple):
    """A failure; the end of the log of ``log`` belongs to it, unless that is empty."""

    error: RunError
    log: str = ""


class Say(NamedTuple):
    """Something that whoever watches may want to know."""

    text: str


Fact = HostJoined | HostGone | ProcessNews | ServerGone | BrokerListens | HostStates | Tick
Command = Start | Kill | Revive | Tell | Fail | Say


def describe_exit(status: int) -> str:
    """How a process ended, in words; ``status`` as in ``server.Ended``."""
    if status < 0:
        known = {s.value: s.name for s in signal.Signals}
        return f"was killed by {known.get(-status, f'signal {-status}')}"
    return f"ended with exit code {status}" + ("" if status else " before the run was over")


def status_facts(status: int) -> dict[str, object]:
    """The same for the result file."""
    if status < 0:
        known = {s.value: s.name for s in signal.Signals}
        return {"signal": known.get(-status, str(-status))}
    return {"exit_code": status}
