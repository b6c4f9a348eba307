"""Who may talk to whom: the keys of one run, what each member gets of them, and where may be listened.

Plain data and rules; the sockets that keep them are ``guarded_mail``'s. A run has a fresh pair of CURVE keys for each
member. A member is told its own pair and the public keys of those it deals with, never another's secret: whoever has
the ticket of a SIP can be that SIP and nobody else. Only where one bootstrap goes to all hosts (Slurm, mpiexec,
Kubernetes) does it hold the pairs of all agents; agents' keys are of no use to a SIP or to the broker.

Keys are Z85 text, so that they travel inside tickets as JSON. No secret is ever in a ``repr``.
"""

import ipaddress
import os
import stat
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
        """A pair that nobody has had before."""
        public, secret = zmq.curve_keypair()
        return KeyPair(public.decode(), secret.decode())

    def __post_init__(self) -> None:
        try:
            belongs = zmq.curve_public(self.secret.encode()).decode() == self.public
        except (zmq.ZMQError, ValueError):
            belongs = False
        if not belongs:
            raise ValueError("the secret key is not that of the public one; the ticket is damaged")

    def __repr__(self) -> str:
        return f"KeyPair(public={self.public!r}, secret={HIDDEN})"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return [("public", self.public), ("secret", HIDDEN)]


class SipKeys(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What one SIP is told: its own pair, and the public keys of the broker and of all SIPs, by rank."""

    own: KeyPair
    broker: Z85
    sips: Publics


class BrokerKeys(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the broker is told: its own pair, and the public keys of the launcher and of all SIPs, by rank."""

    own: KeyPair
    launcher: Z85
    sips: Publics


class LauncherKeys(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the launcher's end of the mail needs: its own pair, and the public keys of the broker and of all agents."""

    own: KeyPair
    broker: Z85
    agents: Publics = ()


class AgentKeys(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the agent of one host is told: its own pair, and the launcher's public key."""

    own: KeyPair
    launcher: Z85


class JobKeys(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All pairs of one run. Only the launcher has them; it gives each member its part."""

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


# --- where may be listened ------------------------------------------------------------------------------------


def check_bind(endpoint: str, keys: MemberKeys | None, plain_loopback: bool = False) -> None:
    """Nobody but the run's own members can connect to where this run listens.

    Files in a folder of our own that nobody else can enter; TCP with keys; ``plain_loopback`` (the user has asked for
    it): TCP on this host without keys.

    Raises:
        ValueError: one line that says what to do.
    """
    scheme, found, place = endpoint.partition("://")
    if not found:
        raise ValueError(f"{endpoint}: no endpoint; write ipc://PATH, unix://PATH or tcp://ADDRESS:PORT")
    if scheme in ("ipc", "unix"):
        _check_folder(endpoint, place)
    elif keys is None and not is_loopback(endpoint):
        raise ValueError(
            f"{endpoint}: other hosts could connect without keys; "
            "let ahbm-launch or ahbm-broker make keys for the run, or listen on 127.0.0.1"
        )
    elif keys is None and not plain_loopback:
        raise ValueError(f"{endpoint}: every user of this host could connect without keys; give keys, or use ipc://")


def is_tcp(endpoint: str) -> bool:
    """Whether an endpoint may lead to another host."""
    return endpoint.startswith("tcp://")


def is_loopback(endpoint: str) -> bool:
    """Whether a TCP endpoint can be reached from this host only. A name that is not ``localhost`` cannot be told."""
    host = endpoint.partition("://")[2].rpartition(":")[0].strip("[]")
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _check_folder(endpoint: str, path: str) -> None:
    if not path or path.startswith("@"):
        raise ValueError(f"{endpoint}: every user of this host could connect; name a file in a private folder")
    folder = os.path.dirname(path) or "."
    try:
        found = os.stat(folder)
    except OSError as error:
        raise ValueError(f"{endpoint}: {folder} cannot be looked at: {error.strerror}") from None
    if not stat.S_ISDIR(found.st_mode):
        raise ValueError(f"{endpoint}: {folder} is no folder")
    if found.st_uid != os.geteuid():
        raise ValueError(f"{endpoint}: {folder} belongs to user {found.st_uid}; use a folder of your own, mode 0700")
    if found.st_mode & 0o077:
        mode = stat.S_IMODE(found.st_mode)
        raise ValueError(f"{endpoint}: other users can enter {folder} (mode {mode:04o}); chmod it to 0700")
