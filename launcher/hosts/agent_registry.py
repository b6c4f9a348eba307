"""Registry of the agent of each host; decides when agents or hosts are lost. Pure: times are arguments.

If an agent reports why it leaves, or an agent's connection is closed shortly after a heartbeat, only the agent has
ended, and another agent can be started on the same host. If an agent becomes silent, the host is lost.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from broker.mail.base import SILENCE_S
from launcher.hosts.wire import Hello
from launcher.supervise.facts import Fact, HostGone, HostSpec
from sipsim import VERSION

HEARTBEAT_S = 0.2
LATER_S = 0.3
"""Added to the allowed silence: the timeout of the connection is detected first, with a better reason."""
FRESH = 0.7
"""The fraction of the allowed silence within which a heartbeat is recent."""
STARTER_OUTPUT_S = 0.4
"""Time for the process that started an agent to print why the agent has ended."""
LONGEST_GAP_S = 0.7
"""After a longer gap between checks, the launcher itself was suspended, and no agent was silent."""


@dataclass
class AgentSlot:
    """Agent of a host. ``routing_id``: ZeroMQ's name of the connection; None if no agent is connected."""

    name: str
    routing_id: bytes | None = None
    pid: int = 0
    address: str = ""
    folder: str = ""
    last_seen_s: float = 0.0
    leave_reason: str | None = None
    closed_s: float | None = None
    starter_output: str = ""
    is_reachable: bool = True
    is_lost: bool = False

    @property
    def is_up(self) -> bool:
        """Whether messages can be sent to the agent."""
        return self.routing_id is not None

    def leave(self, reason: str) -> None:
        """Record that the agent has left, and why."""
        self.routing_id, self.leave_reason = None, reason

    def connection_closed(self, now_s: float) -> None:
        """Record when the agent's connection was closed."""
        if self.closed_s is None:
            self.closed_s = now_s


class RejectedAgent(NamedTuple):
    """Rejection of an agent. ``host``: index of the host that now lacks an agent; None if no host lacks an agent."""

    host: int | None
    reason: str


class AgentRegistry:
    """Registry of a run's agents. ``silence_s``: seconds after which a silent host is lost; None if silence is allowed.

    ``by_name``: whether agents are matched by host name, since the cluster may number hosts in another order.
    """

    def __init__(self, specs: Sequence[HostSpec], silence_s: float | None, by_name: bool = False) -> None:
        self._names = [spec.name.partition(".")[0] for spec in specs] if by_name else []
        self._specs = specs
        self.slots = [AgentSlot(spec.name) for spec in specs]
        self._silence_s = silence_s
        self._checked_s: float | None = None

    def extend_silence(self, silence_s: float) -> None:
        """Allow agents a silence of ``silence_s`` seconds from now on, while agents send their last files."""
        if self._silence_s is not None:
            self._silence_s = max(self._silence_s, silence_s)

    def host_of(self, routing_id: bytes) -> int | None:
        """Return the index of a connected agent's host; None if ``routing_id`` belongs to no connected agent."""
        return next((host for host, slot in enumerate(self.slots) if slot.routing_id == routing_id), None)

    def silent(self, now_s: float) -> dict[str, float]:
        """Return seconds since the last message, by name of the host, for agents that sent no recent heartbeat."""
        fresh_s = FRESH * min(self._silence_s or SILENCE_S, SILENCE_S)
        silent_s = {slot.name: now_s - slot.last_seen_s for slot in self.slots if slot.is_up}
        return {name: each for name, each in silent_s.items() if each > fresh_s}

    def admit(self, routing_id: bytes, member: str | None, hello: Hello, now_s: float) -> int | RejectedAgent:
        """Return the host of the agent that sent ``hello``, or a rejection. ``member``: node rank of its key."""
        number = hello.node_rank
        if number >= len(self.slots):
            return RejectedAgent(None, f"an agent on {hello.name} has node rank {number}, not below {len(self.slots)}")
        host = self._names.index(hello.name) if self._names.count(hello.name) == 1 else number
        slot = self.slots[host]
        if member is not None and member != str(number):
            reason = f"{slot.name}: an agent with the key of node rank {member} reports node rank {number}"
            return RejectedAgent(None, reason)
        if slot.is_up or slot.is_lost:
            reason = f"{slot.name}: a second agent reports node rank {number} (pid {hello.pid} on {hello.name})"
            return RejectedAgent(None, reason)
        if hello.version != VERSION:
            reason = f"{slot.name}: the agent has version {hello.version}, the launcher {VERSION}; install one version"
            return RejectedAgent(host, reason)
        name = slot.name if self._specs[host].is_named else hello.name
        self.slots[host] = AgentSlot(name, routing_id, hello.pid, hello.address, hello.folder, now_s)
        return host

    def await_restart(self, host: int) -> None:
        """Clear the slot of a host on which another agent is being started."""
        self.slots[host] = AgentSlot(self.slots[host].name)

    def starter_ended(self, host: int | None, reason: str, now_s: float, silent: bool = False) -> None:
        """Record that the process that started the agent of ``host``, or all agents if None, has exited.

        ``silent``: the process exited without output, so another attempt may succeed.
        """
        for slot in self.slots if host is None else [self.slots[host]]:
            slot.starter_output = reason or "the process that starts the agent has ended"
            slot.is_reachable = silent
            if slot.is_up:
                slot.connection_closed(now_s)

    def overdue(self, now_s: float, can_revive: bool) -> list[Fact]:
        """Return the losses of agents and hosts that are detected at ``now_s``, a monotonic time."""
        gap_s = now_s - (self._checked_s if self._checked_s is not None else now_s)
        self._checked_s = now_s
        if gap_s > LONGEST_GAP_S:
            # The launcher was suspended.
            for slot in self.slots:
                slot.last_seen_s += gap_s
            return []
        found = (self._gone(host, slot, now_s, can_revive) for host, slot in enumerate(self.slots))
        return [fact for fact in found if fact is not None]

    def _gone(self, host: int, slot: AgentSlot, now_s: float, can_revive: bool) -> Fact | None:
        if slot.is_lost:
            return None
        agent = f"the agent on {slot.name}" + (f" (pid {slot.pid})" if slot.pid else "")
        if not slot.is_up:
            if slot.leave_reason is not None:
                return self._mark_lost(host, slot, "agent_failed", f"{agent} has left: {slot.leave_reason}", can_revive)
            if slot.starter_output and not slot.pid:
                return self._mark_lost(
                    host,
                    slot,
                    "agent_failed",
                    f"{slot.name}: no agent has started: {slot.starter_output}",
                    can_revive and slot.is_reachable,
                )
            return None
        silent_s = now_s - slot.last_seen_s
        if slot.closed_s is None:
            if self._silence_s is None or silent_s < self._silence_s + LATER_S:
                return None
            reason = f"host {slot.name} is lost: the agent (pid {slot.pid}) has been silent for {silent_s:.1f} s"
            return self._mark_lost(host, slot, "host_lost", reason, False)
        if slot.closed_s - slot.last_seen_s > FRESH * (self._silence_s or SILENCE_S):
            reason = f"host {slot.name} is lost: the connection to its agent (pid {slot.pid}) has ended"
            return self._mark_lost(host, slot, "host_lost", reason, False)
        if not slot.starter_output and now_s - slot.closed_s < STARTER_OUTPUT_S:
            return None
        output = f": {slot.starter_output}" if slot.starter_output else ""
        return self._mark_lost(host, slot, "agent_failed", f"{agent} has ended{output}", can_revive)

    def _mark_lost(self, host: int, slot: AgentSlot, kind: str, reason: str, can_revive: bool) -> Fact:
        slot.routing_id, slot.is_lost = None, True
        return HostGone(host, kind, reason, can_revive)
