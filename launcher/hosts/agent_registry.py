"""Which agents are there: who may take which post, who has left it and how that is told. Pure: times come from outside.

An agent that says why it leaves, or whose connection is closed while signs of life were fresh, has ended; its host
lives, and another one may be started there. One that falls silent has taken its host with it.
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
"""Agents are given up after connections, which tell more."""
FRESH = 0.7
"""The part of the silence that is allowed within which a sign of life is fresh."""
WORDS_S = 0.4
"""For whoever started an agent that has ended to say how."""
LONGEST_GAP_S = 0.7
"""Whoever has not looked for so long has heard nothing, and nobody else is to blame."""


@dataclass
class AgentSlot:
    """The place of a host's agent. ``routing_id``: where it is now; None before it came and after it has gone."""

    name: str
    routing_id: bytes | None = None
    pid: int = 0
    address: str = ""
    folder: str = ""
    heard_s: float = 0.0
    left: str | None = None
    cut_s: float | None = None
    starter_words: str = ""
    is_reachable: bool = True
    given_up: bool = False

    @property
    def is_up(self) -> bool:
        """Whether it can be spoken to."""
        return self.routing_id is not None

    def leave(self, why: str) -> None:
        """It says by itself that it goes."""
        self.routing_id, self.left = None, why

    def cut_off(self, now_s: float) -> None:
        """Its connection has ended."""
        if self.cut_s is None:
            self.cut_s = now_s


class RejectedAgent(NamedTuple):
    """Why an agent can have no post. ``host``: whose only agent it was, so that none comes there; None for nobody's."""

    host: int | None
    why: str


class AgentRegistry:
    """The posts of a run. ``silence_s``: after how long silence is death, None for never.

    ``by_name``: others number the hosts, so the names tell which of ours an agent is on.
    """

    def __init__(self, specs: Sequence[HostSpec], silence_s: float | None, by_name: bool = False) -> None:
        self._names = [spec.name.partition(".")[0] for spec in specs] if by_name else []
        self._specs = specs
        self.agent_slots = [AgentSlot(spec.name) for spec in specs]
        self._silence_s = silence_s
        self._looked_s: float | None = None
        self._lost_s = 0.0

    def be_patient(self, silence_s: float) -> None:
        """From now on death is what lasts so much longer: what they still have is worth the wait."""
        if self._silence_s is not None:
            self._silence_s = max(self._silence_s, silence_s)

    def host_of(self, routing_id: bytes) -> int | None:
        """Whose agent that is now."""
        return next((host for host, slot in enumerate(self.agent_slots) if slot.routing_id == routing_id), None)

    def seat(self, routing_id: bytes, member: str | None, hello: Hello, now_s: float) -> int | RejectedAgent:
        """The post of an agent that says hello, or why it can have none. Whoever says a wrong number is only that."""
        number = hello.node_rank
        if number >= len(self.agent_slots):
            return RejectedAgent(
                None, f"an agent on {hello.name} says that it is node {number} of {len(self.agent_slots)}"
            )
        host = self._names.index(hello.name) if self._names.count(hello.name) == 1 else number
        slot = self.agent_slots[host]
        if member is not None and member != str(number):
            why = f"{slot.name}: an agent with the key of node {member} says that it is node {number}"
            return RejectedAgent(None, why)
        if slot.is_up or slot.given_up:
            why = f"{slot.name}: a second agent says that it is node {number} (pid {hello.pid} on {hello.name})"
            return RejectedAgent(None, why)
        if hello.version != VERSION:
            why = f"{slot.name}: its agent is of version {hello.version}, this is {VERSION}; install one version"
            return RejectedAgent(host, why)
        name = slot.name if self._specs[host].is_named else hello.name
        self.agent_slots[host] = AgentSlot(name, routing_id, hello.pid, hello.address, hello.folder, now_s)
        return host

    def expect_again(self, host: int) -> None:
        """Another agent is on its way there."""
        self.agent_slots[host] = AgentSlot(self.agent_slots[host].name)

    def starter_ended(self, host: int | None, why: str, now_s: float, speechless: bool = False) -> None:
        """Whoever started agents, that of one host or all of them, has ended.

        ``speechless``: without a word, so that another one may do better.
        """
        for slot in self.agent_slots if host is None else [self.agent_slots[host]]:
            slot.starter_words = why or "it has ended"
            slot.is_reachable = speechless
            if slot.is_up:
                slot.cut_off(now_s)

    def overdue(self, now_s: float, can_revive: bool) -> list[Fact]:
        """Who has gone, as far as can be told at ``now_s``."""
        gap_s = now_s - (self._looked_s if self._looked_s is not None else now_s)
        self._looked_s = now_s
        if gap_s > LONGEST_GAP_S:
            # It was us who did not look.
            for slot in self.agent_slots:
                slot.heard_s += gap_s
            return []
        found = (self._gone(host, slot, now_s, can_revive) for host, slot in enumerate(self.agent_slots))
        return [fact for fact in found if fact is not None]

    def _gone(self, host: int, slot: AgentSlot, now_s: float, can_revive: bool) -> Fact | None:
        if slot.given_up:
            return None
        agent = f"the agent on {slot.name}" + (f" (pid {slot.pid})" if slot.pid else "")
        if not slot.is_up:
            if slot.left is not None:
                return self._give_up(host, slot, "agent_failed", f"{agent} has left: {slot.left}", can_revive)
            if slot.starter_words and not slot.pid:
                return self._give_up(
                    host,
                    slot,
                    "agent_failed",
                    f"{slot.name}: no agent: {slot.starter_words}",
                    can_revive and slot.is_reachable,
                )
            return None
        silent_s = now_s - slot.heard_s
        if slot.cut_s is None:
            if self._silence_s is None or silent_s < self._silence_s + LATER_S:
                return None
            why = f"host {slot.name} is lost: its agent (pid {slot.pid}) has been silent for {silent_s:.1f} s"
            return self._give_up(host, slot, "host_lost", why, False)
        if slot.cut_s - slot.heard_s > FRESH * (self._silence_s or SILENCE_S):
            why = f"host {slot.name} is lost: the connection to its agent (pid {slot.pid}) has ended"
            return self._give_up(host, slot, "host_lost", why, False)
        if not slot.starter_words and now_s - slot.cut_s < WORDS_S:
            return None
        words = f": {slot.starter_words}" if slot.starter_words else ""
        return self._give_up(host, slot, "agent_failed", f"{agent} has ended{words}", can_revive)

    def _give_up(self, host: int, slot: AgentSlot, kind: str, why: str, can_revive: bool) -> Fact:
        slot.routing_id, slot.given_up = None, True
        return HostGone(host, kind, why, can_revive)
