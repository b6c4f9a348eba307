"""Bootstrap of an agent: endpoint and keys for a connection to the launcher. Choice of addresses for other hosts."""

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
"""Port of a datagram socket that is connected only to select a route; nothing is sent."""


class Bootstrap(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Bootstrap for one agent, or for all agents if ``node_rank`` is None; ``keys`` then has one entry per host.

    ``rank_names``: environment variables that may contain the node rank; if empty, the agent tries all known variables.
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
            raise ValueError(f"the bootstrap has {len(self.keys)} keys for {self.n_hosts} hosts")

    def text(self) -> str:
        """Return the bootstrap as one line of JSON."""
        return msgspec.json.encode(self).decode()

    @staticmethod
    def from_text(text: str, where: str) -> "Bootstrap":
        """Parse and check the text.

        Raises:
            ConfigError: if the text is not a bootstrap of this version.
        """
        return of_this_version(text, Bootstrap, where, "contains no bootstrap")

    def keys_of(self, node_rank: int) -> AgentKeys | None:
        """Return the keys of the agent with this node rank; None if the run has no keys."""
        if not self.keys:
            return None
        return self.keys[0] if self.node_rank is not None else self.keys[node_rank]


def host_of(endpoint: str) -> str:
    """Return the address in a TCP endpoint."""
    return endpoint.partition("://")[2].rpartition(":")[0].strip("[]")


def tcp(address: str, port: str = "*") -> str:
    """Return the TCP endpoint of an address; if no port is given, the operating system chooses a port."""
    return f"tcp://[{address}]:{port}" if ":" in address else f"tcp://{address}:{port}"


def address_towards(host: str) -> str:
    """Return the source address of this machine's packets to ``host``.

    Raises:
        OSError: if the name is invalid or has no address, or there is no route.
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
    """Return the address on which SIPs of this host listen: ``bind``, or the source address towards the launcher.

    Raises:
        ConfigError: if there is no route to the launcher, or other hosts cannot reach the address.
    """
    launcher_host = host_of(launcher)
    try:
        address = bind or address_towards(launcher_host)
    except OSError as error:
        raise ConfigError(f"no route to the launcher at {launcher_host}: {error}; give --bind ADDR") from None
    if is_loopback(tcp(address)) and not is_loopback(launcher):
        raise ConfigError(f"{address} is a loopback address; give --bind an address that other hosts can reach")
    return address


def launcher_address(hosts: list[str], bind: str = "") -> str:
    """Return the address on which launcher and broker listen for ``hosts``.

    Raises:
        ConfigError: if this machine has no address that other hosts can reach, or several.
    """
    if bind:
        return bind
    if hosts and all(host in LOCAL_NAMES for host in hosts):
        return _towards(hosts[0])
    # Host names need not resolve on this machine: ssh and Slurm resolve them.
    found = [address for address in map(_towards, [*hosts, socket.gethostname()]) if address]
    far = [address for address in found if not is_loopback(tcp(address))] or interface_addresses()
    if len(far) == 1 or (far and found):
        return far[0]
    if far:
        raise ConfigError(f"this machine has several addresses; give --bind one of {', '.join(far)}")
    what = f"{socket.gethostname()} resolves to a loopback address" if found else "this machine has no address"
    raise ConfigError(f"{what}; give --bind an address that all hosts can reach")


def interface_addresses() -> list[str]:
    """Return the IPv4 addresses of this machine's interfaces, except loopback addresses."""
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
