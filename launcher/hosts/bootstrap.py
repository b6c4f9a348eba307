"""What an agent needs before it can connect to the launcher: endpoint and keys. And addresses that hosts can reach."""

import contextlib
import fcntl
import socket
import struct

import msgspec

from broker.mail.base import SILENCE_S
from broker.security import AgentKeys, is_loopback
from launcher.processes.ticket import of_this_version
from sipsim import VERSION
from sipsim.core.errors import ConfigError

LOCAL_NAMES = ("localhost", "127.0.0.1", "::1")
SIOCGIFADDR = 0x8915
DISCARD_PORT = 9
"""Nothing is sent there: connecting a datagram socket only selects a route."""


class Bootstrap(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """For one agent, or for all: then ``node_rank`` is None and ``keys`` has an entry a host, by node rank.

    ``rank_names``: the environment variables that may hold the node rank; empty for all known ones.
    """

    version: str = VERSION
    launcher: str
    n_hosts: int
    node_rank: int | None = None
    keys: tuple[AgentKeys, ...] = ()
    rank_names: tuple[str, ...] = ()
    silence_s: float | None = SILENCE_S

    def __post_init__(self) -> None:
        if self.keys and len(self.keys) != (self.n_hosts if self.node_rank is None else 1):
            raise ValueError(f"{len(self.keys)} keys for {self.n_hosts} hosts")

    def text(self) -> str:
        """As one line of JSON."""
        return msgspec.json.encode(self).decode()

    @staticmethod
    def from_text(text: str, where: str) -> "Bootstrap":
        """Parse and check the text.

        Raises:
            ConfigError: when it is not a bootstrap of this version.
        """
        return of_this_version(text, Bootstrap, where, "holds no bootstrap")

    def keys_of(self, node_rank: int) -> AgentKeys | None:
        """The keys of the agent of that host."""
        if not self.keys:
            return None
        return self.keys[0] if self.node_rank is not None else self.keys[node_rank]


def host_of(endpoint: str) -> str:
    """The address in a TCP endpoint."""
    return endpoint.partition("://")[2].rpartition(":")[0].strip("[]")


def tcp(address: str, port: str = "*") -> str:
    """An endpoint; the system chooses a port."""
    return f"tcp://[{address}]:{port}" if ":" in address else f"tcp://{address}:{port}"


def address_towards(host: str) -> str:
    """Which address of this machine packets to ``host`` come from.

    Raises:
        OSError: when the name is invalid or has no address, or no route leads there.
    """
    try:
        found = socket.getaddrinfo(host, DISCARD_PORT, type=socket.SOCK_DGRAM)
    except ValueError as error:
        raise OSError(f"{host!r} is not a host name: {error}") from None
    family, kind, proto, _, target = found[0]
    with socket.socket(family, kind, proto) as probe:
        probe.connect(target)
        address: str = probe.getsockname()[0]
        return address


def sip_address(launcher: str, bind: str = "") -> str:
    """The address on which the SIPs of this host listen: ``bind``, or the one by which it reaches the launcher.

    Raises:
        ConfigError: when other hosts could not reach them there.
    """
    launcher_host = host_of(launcher)
    try:
        address = bind or address_towards(launcher_host)
    except OSError as error:
        raise ConfigError(f"no route to the launcher at {launcher_host}: {error}; give --bind") from None
    if is_loopback(tcp(address)) and not is_loopback(launcher):
        raise ConfigError(f"{address} resolves to a loopback address; give --bind with one that other hosts can reach")
    return address


def launcher_address(hosts: list[str], bind: str = "") -> str:
    """The address on which the launcher and the broker listen for ``hosts``.

    Raises:
        ConfigError: when there is no address, or none that the hosts can reach.
    """
    if bind:
        return bind
    if hosts and all(host in LOCAL_NAMES for host in hosts):
        return _towards(hosts[0])
    # Host names need not resolve here: ssh and Slurm resolve them on their own.
    found = [address for address in map(_towards, [*hosts, socket.gethostname()]) if address]
    far = [address for address in found if not is_loopback(tcp(address))] or interface_addresses()
    if len(far) == 1 or (far and found):
        return far[0]
    if far:
        raise ConfigError(f"this machine has several addresses; give --bind with one of {', '.join(far)}")
    what = f"{socket.gethostname()} resolves to a loopback address" if found else "this machine has no address"
    raise ConfigError(f"{what}; give --bind with one that all hosts can reach")


def interface_addresses() -> list[str]:
    """The IPv4 addresses of this machine's interfaces, without loopback."""
    found = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            with contextlib.suppress(OSError):
                reply = fcntl.ioctl(probe, SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
                found.append(socket.inet_ntoa(reply[20:24]))
    return [address for address in found if not is_loopback(tcp(address))]


def _towards(host: str) -> str:
    try:
        return address_towards(host)
    except OSError:
        return ""
