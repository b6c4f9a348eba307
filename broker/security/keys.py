"""The keys of one run, and the part of them that each member receives. Plain data.

A run has a fresh CURVE key pair for each member. A member receives its own pair and the public keys of its peers, never
another's secret: the ticket of a SIP authenticates as that SIP only. One bootstrap for all hosts (Slurm, mpiexec,
Kubernetes) holds the pairs of all agents; an agent's key is not accepted by SIPs or the broker.

Keys are Z85 text, so that they travel inside tickets as JSON. No secret is ever in a ``repr``.
"""

from typing import Annotated, Any

import msgspec
import zmq
from msgspec import Meta

from broker.ids import MAX_RANK

Z85 = Annotated[str, Meta(pattern=r"^[0-9a-zA-Z.\-:+=^!/*?&<>()\[\]{}@%$#]{40}\Z")]
Publics = Annotated[tuple[Z85, ...], Meta(max_length=MAX_RANK + 1)]
HIDDEN = "<hidden>"


class KeyPair(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A CURVE key pair; its halves belong together."""

    public: Z85
    secret: Z85

    @staticmethod
    def fresh() -> "KeyPair":
        """A new pair."""
        public, secret = zmq.curve_keypair()
        return KeyPair(public.decode(), secret.decode())

    def __post_init__(self) -> None:
        try:
            matches = zmq.curve_public(self.secret.encode()).decode() == self.public
        except (zmq.ZMQError, ValueError):
            matches = False
        if not matches:
            raise ValueError("the secret key is not that of the public one; the ticket is damaged")

    def __repr__(self) -> str:
        return f"KeyPair(public={self.public!r}, secret={HIDDEN})"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return [("public", self.public), ("secret", HIDDEN)]


class SipKeys(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The keys of one SIP: its own pair, and the public keys of the broker and of all SIPs, by rank."""

    own: KeyPair
    broker: Z85
    sips: Publics


class BrokerKeys(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The keys of the broker: its own pair, and the public keys of the launcher and of all SIPs, by rank."""

    own: KeyPair
    launcher: Z85
    sips: Publics


class LauncherKeys(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The keys of the launcher's end of the mail: its own pair, and the public keys of the broker and of all agents."""

    own: KeyPair
    broker: Z85
    agents: Publics = ()


class AgentKeys(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The keys of the agent of one host: its own pair, and the launcher's public key."""

    own: KeyPair
    launcher: Z85


class JobKeys(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All pairs of one run. Only the launcher has them; it sends each member its part."""

    broker: KeyPair
    launcher: KeyPair
    sips: tuple[KeyPair, ...]
    agents: tuple[KeyPair, ...] = ()

    @staticmethod
    def fresh(n_sips: int, n_agents: int = 0) -> "JobKeys":
        """Keys for a new run."""
        pairs = [KeyPair.fresh() for _ in range(2 + n_sips + n_agents)]
        return JobKeys(pairs[0], pairs[1], tuple(pairs[2 : 2 + n_sips]), tuple(pairs[2 + n_sips :]))

    def for_sip(self, rank: int) -> SipKeys:
        """The part of one SIP, whatever its incarnation."""
        return SipKeys(self.sips[rank], self.broker.public, self._sips)

    def for_broker(self) -> BrokerKeys:
        """The broker's part."""
        return BrokerKeys(self.broker, self.launcher.public, self._sips)

    def for_launcher(self) -> LauncherKeys:
        """The launcher's part, for its ends of the mail."""
        return LauncherKeys(self.launcher, self.broker.public, tuple(pair.public for pair in self.agents))

    def for_agent(self, number: int) -> AgentKeys:
        """The part of one host's agent."""
        return AgentKeys(self.agents[number], self.launcher.public)

    @property
    def _sips(self) -> tuple[str, ...]:
        return tuple(pair.public for pair in self.sips)


MemberKeys = SipKeys | BrokerKeys | LauncherKeys | AgentKeys
