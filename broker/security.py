"""Access control of connections: CURVE keys, checks of endpoints, and the authenticator of a listening socket.

A run has a fresh CURVE key pair for each member. A member receives its own pair and the public keys of its peers, never
another member's secret key, so the ticket of a SIP authenticates that SIP only. One bootstrap for all hosts (Slurm,
mpiexec, Kubernetes) contains the pairs of all agents; SIPs and the broker accept no agent's key. Keys are Z85 text, so
that tickets carry them as JSON. No ``repr`` shows a secret.
"""

import contextlib
import ctypes
import errno
import ipaddress
import os
import resource
import socket
import stat
import struct
import threading
from collections.abc import Callable, Mapping
from typing import Annotated, Any, TypeVar

import msgspec
import zmq
from msgspec import Meta
from zmq.utils import z85

from broker.ids import MAX_RANK

Z85 = Annotated[str, Meta(pattern=r"^[0-9a-zA-Z.\-:+=^!/*?&<>()\[\]{}@%$#]{40}\Z")]
PublicKeys = Annotated[tuple[Z85, ...], Meta(max_length=MAX_RANK + 1)]
HIDDEN = "<hidden>"


class KeyPair(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A CURVE key pair. Raises ``ValueError`` if the keys do not match each other."""

    public: Z85
    secret: Z85

    @staticmethod
    def fresh() -> "KeyPair":
        """Make a new key pair."""
        public, secret = zmq.curve_keypair()
        return KeyPair(public.decode(), secret.decode())

    def __post_init__(self) -> None:
        try:
            matches = zmq.curve_public(self.secret.encode()).decode() == self.public
        except (zmq.ZMQError, ValueError):
            matches = False
        if not matches:
            raise ValueError("the secret and the public key do not match; the ticket is damaged: write a new ticket")

    def __repr__(self) -> str:
        return f"KeyPair(public={self.public!r}, secret={HIDDEN})"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return [("public", self.public), ("secret", HIDDEN)]


class SipKeys(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The keys of one SIP: its own pair, and the public keys of the broker and of all SIPs, by rank."""

    own: KeyPair
    broker: Z85
    sips: PublicKeys


class BrokerKeys(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The keys of the broker: its own pair, and the public keys of the launcher and of all SIPs, by rank."""

    own: KeyPair
    launcher: Z85
    sips: PublicKeys


class LauncherKeys(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The keys of the launcher's end of the mail: its own pair, and the public keys of the broker and of all agents."""

    own: KeyPair
    broker: Z85
    agents: PublicKeys = ()


class AgentKeys(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The keys of the agent of one host: its own pair, and the launcher's public key."""

    own: KeyPair
    launcher: Z85


class JobKeys(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The key pairs of all members of one run. Only the launcher has all keys; each member receives its part."""

    broker: KeyPair
    launcher: KeyPair
    sips: tuple[KeyPair, ...]
    agents: tuple[KeyPair, ...] = ()

    @staticmethod
    def fresh(n_sips: int, n_agents: int = 0) -> "JobKeys":
        """Make the keys of a new run."""
        pairs = [KeyPair.fresh() for _ in range(2 + n_sips + n_agents)]
        return JobKeys(pairs[0], pairs[1], tuple(pairs[2 : 2 + n_sips]), tuple(pairs[2 + n_sips :]))

    def for_sip(self, rank: int) -> SipKeys:
        """The keys that the SIP ``rank`` needs; equal after a restart."""
        return SipKeys(self.sips[rank], self.broker.public, self._sips)

    def for_broker(self) -> BrokerKeys:
        """The keys that the broker needs."""
        return BrokerKeys(self.broker, self.launcher.public, self._sips)

    def for_launcher(self) -> LauncherKeys:
        """The keys that the launcher needs for its mail with the broker and with agents."""
        return LauncherKeys(self.launcher, self.broker.public, tuple(pair.public for pair in self.agents))

    def for_agent(self, number: int) -> AgentKeys:
        """The keys that one agent needs. ``number``: the agent's index, from 0."""
        return AgentKeys(self.agents[number], self.launcher.public)

    @property
    def _sips(self) -> tuple[str, ...]:
        return tuple(pair.public for pair in self.sips)


MemberKeys = SipKeys | BrokerKeys | LauncherKeys | AgentKeys


def check_bind(endpoint: str, keys: MemberKeys | None, plain_loopback: bool = False) -> None:
    """Check that only members of the run can connect to ``endpoint``.

    An endpoint may be a file in a folder of this user that no other user can enter, or TCP with keys.
    ``plain_loopback`` also allows TCP on this host without keys.

    Raises:
        ValueError: if another process could connect; the message says what to do.
    """
    scheme, separator, path = endpoint.partition("://")
    if not separator:
        raise ValueError(f"{endpoint!r} is no endpoint; write ipc://PATH, unix://PATH or tcp://ADDRESS:PORT")
    if scheme in ("ipc", "unix"):
        _check_folder(endpoint, path)
    elif keys is None and not is_loopback(endpoint):
        raise ValueError(
            f"{endpoint}: other hosts could connect without keys; "
            "let ahbm-launch or ahbm-broker make keys for the run, or listen on 127.0.0.1"
        )
    elif keys is None and not plain_loopback:
        raise ValueError(f"{endpoint}: every user of this host could connect without keys; give keys, or use ipc://")


def is_tcp(endpoint: str) -> bool:
    """Whether an endpoint is a TCP endpoint, which other hosts may reach."""
    return endpoint.startswith("tcp://")


def is_loopback(endpoint: str) -> bool:
    """Whether a TCP endpoint is reachable from this host only. False for host names other than ``localhost``."""
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
        status = os.stat(folder)
    except OSError as error:
        raise ValueError(f"{endpoint}: cannot read {folder}: {error.strerror}; create it with mode 0700") from None
    if not stat.S_ISDIR(status.st_mode):
        raise ValueError(f"{endpoint}: {folder} is not a folder; name a file in a private folder")
    if status.st_uid != os.geteuid():
        raise ValueError(f"{endpoint}: {folder} belongs to user {status.st_uid}; use a folder of your own, mode 0700")
    if status.st_mode & 0o077:
        mode = stat.S_IMODE(status.st_mode)
        raise ValueError(f"{endpoint}: other users can enter {folder} (mode {mode:04o}); run chmod 0700 {folder}")


SPARES = 16
MARGIN = 8
"""Number of free file descriptors, besides the spares, below which a guard blocks."""
MAX_DROPPED = 1000
"""Bound on the connections in the accept queue that a guard closes when it blocks."""
OPEN_FILES = "/proc/self/fd"
RECHECK_MS = 200
"""Period in ms at which a guard that blocks is updated."""
_RETURN_0 = struct.pack("=HBBI", 0x06, 0, 0, 0)
"""A classic BPF program that drops every packet."""
_SO_ATTACH_FILTER, _SO_DETACH_FILTER = 26, 27
_GUARDS: "set[AcceptGuard]" = set()
Opened = TypeVar("Opened")


def release_spares() -> bool:
    """Let all accept guards block, as this process has no free file descriptor; return whether one became free."""
    freed = [guard.block() for guard in list(_GUARDS)]
    return any(freed)


def retry_with_spares(open_files: Callable[[], Opened]) -> Opened:
    """Return ``open_files()``; if no file descriptor was free, release the spares of all guards and try again."""
    try:
        return open_files()
    except Exception as error:
        if getattr(error, "errno", None) != errno.EMFILE or not release_spares():
            raise
        return open_files()


class AcceptGuard:
    """Blocks new connections to the TCP socket ``fd``, which another object owns, while few file descriptors are free.

    libzmq accepts every connection and holds it for the time of a handshake. So unknown clients that connect
    often enough take all file descriptors of a process, which then fails. A guard reserves some descriptors as spares.
    It blocks when few others are free: the kernel drops connection requests (which a member's system repeats), the
    connections in the accept queue are closed, and the spares are released. It unblocks when enough are free again.

    ``on_blocked`` is called with the limit of open files when the guard blocks for the first time, from any thread.
    """

    def __init__(self, fd: int, on_blocked: Callable[[int], None]) -> None:
        self._socket = socket.socket(fileno=os.dup(fd))
        self._socket.setblocking(False)
        self._on_blocked = on_blocked
        self._lock = threading.Lock()
        self._spares: list[int] = []
        self._is_blocking = False
        self._was_blocked = False
        self._reserve_spares()
        _GUARDS.add(self)

    def fileno(self) -> int:
        """The socket's descriptor: readable when a connection is to be accepted."""
        return self._socket.fileno()

    @property
    def is_blocking(self) -> bool:
        """Whether new connections are dropped."""
        return self._is_blocking

    def update(self) -> None:
        """Block or unblock, by the number of free file descriptors."""
        n_free = _free_descriptors()
        if n_free < MARGIN:
            self.block()
        elif self._is_blocking and n_free >= SPARES + 2 * MARGIN:
            self._unblock()

    def block(self) -> bool:
        """Drop new connections and release the spares; return whether there were any spares."""
        with self._lock:
            had_spares = bool(self._spares)
            if not self._is_blocking:
                self._is_blocking = True
                self._drop_connections()
            for fd in self._spares:
                os.close(fd)
            self._spares.clear()
            is_first, self._was_blocked = not self._was_blocked, True
        if is_first:
            self._on_blocked(_limit())
        return had_spares

    def close(self) -> None:
        """Release the guard's file descriptors; the listening socket stays open."""
        _GUARDS.discard(self)
        with self._lock:
            for fd in self._spares:
                os.close(fd)
            self._spares.clear()
            self._socket.close()

    def _unblock(self) -> None:
        with self._lock:
            self._is_blocking = False
            self._reserve_spares()
            with contextlib.suppress(OSError):
                self._socket.setsockopt(socket.SOL_SOCKET, _SO_DETACH_FILTER, 0)

    def _drop_connections(self) -> None:
        program = ctypes.create_string_buffer(_RETURN_0)
        filter_ = struct.pack("@HP", 1, ctypes.addressof(program))
        # On a system without such filters clients still connect, but the spares are released all the same.
        with contextlib.suppress(OSError):
            self._socket.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, filter_)
        if self._spares:
            os.close(self._spares.pop())
        with contextlib.suppress(OSError):
            for _ in range(MAX_DROPPED):
                self._socket.accept()[0].close()

    def _reserve_spares(self) -> None:
        with contextlib.suppress(OSError):
            while len(self._spares) < SPARES:
                self._spares.append(os.dup(self._socket.fileno()))


def _free_descriptors() -> int:
    """Number of files that this process can still open; 2**30 if unknown."""
    try:
        return _limit() - len(os.listdir(OPEN_FILES))
    except OSError as error:
        return 0 if error.errno in (errno.EMFILE, errno.ENFILE) else 1 << 30


def _limit() -> int:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return soft if soft != resource.RLIM_INFINITY else 1 << 30


ENDPOINT = "inproc://zeromq.zap.01"
DOMAIN = "ahbm"
_VERSION = b"1.0"


class ZapAuthenticator:
    """Authenticator of one ZeroMQ context: accepts each client whose key is in ``members`` (Z85 key to name).

    The protocol is ZAP, ZeroMQ's RFC 27. pyzmq's ``ThreadAuthenticator`` (27.3) cannot be used: ``Context.term`` blocks
    forever unless it is stopped first, it writes rejections to a debug log without the client's address, and its import
    of asyncio doubles the start time of a process. The authenticator is a thread because a SIP may compute for minutes
    without receiving, while peers connect. The thread waits in a receive without the GIL, and ends with its context.
    libzmq accepts every client once the ZAP socket is closed, unless the domain is enforced (``ZAP_ENFORCE_DOMAIN``).

    libzmq attaches the member's name to every frame of the connection (``User-Id``). This thread calls ``on_rejected``
    with the address of a rejected client and the reason.
    """

    def __init__(
        self,
        context: "zmq.Context[zmq.Socket[bytes]]",
        members: Mapping[str, str],
        on_rejected: Callable[[str, str], None],
    ) -> None:
        self._names = {z85.decode(key): name.encode() for key, name in members.items()}
        self._on_rejected = on_rejected
        self._context = context
        # A shadow context: otherwise another thread would close this socket when it closes the original context.
        self._socket: zmq.Socket[bytes] = zmq.Context.shadow(context.underlying).socket(zmq.REP)
        self._socket.setsockopt(zmq.LINGER, 0)
        self._socket.bind(ENDPOINT)
        self._thread = threading.Thread(target=self._serve, name="zap", daemon=True)
        self._guard: AcceptGuard | None = None

    def start(self, guard: AcceptGuard | None = None) -> None:
        """Begin to answer requests. ``guard``: the guard of the listening socket, which this thread updates."""
        self._guard = guard
        self._thread.start()

    def close(self) -> None:
        """Terminate the context and wait for the thread. All other sockets of the context must be closed."""
        if self._thread.ident is None:
            self._socket.close()
        self._context.term()
        if self._thread.ident is not None:
            self._thread.join()

    def answer(self, request: list[bytes]) -> list[bytes]:
        """Return the reply to one request of libzmq."""
        number = request[1] if len(request) > 1 else b""
        name, reason = self._decide(request)
        if name is None:
            self._on_rejected(request[3].decode(errors="replace") if len(request) > 3 else "", reason)
            return [_VERSION, number, b"400", b"not of this run", b"", b""]
        return [_VERSION, number, b"200", b"", name, b""]

    def _decide(self, request: list[bytes]) -> tuple[bytes | None, str]:
        if len(request) != 7 or request[0] != _VERSION or request[2] != DOMAIN.encode():
            return None, "the client's authentication request is malformed"
        if request[5] != b"CURVE":
            return None, "the client has no key"
        return self._names.get(request[6]), "the client's key is not of this run"

    def _serve(self) -> None:
        try:
            while True:
                self._update_guard()
                self._socket.send_multipart(self.answer(self._socket.recv_multipart()))
        except zmq.ContextTerminated:
            pass
        finally:
            self._socket.close()
            if self._guard is not None:
                self._guard.close()

    def _update_guard(self) -> None:
        """Update the guard at every new connection, until a request has arrived."""
        while self._guard is not None:
            poller = zmq.Poller()
            poller.register(self._socket, zmq.POLLIN)
            # While the guard blocks, connections may stay in the accept queue, so its socket is not polled.
            is_blocking = self._guard.is_blocking
            if not is_blocking:
                poller.register(self._guard, zmq.POLLIN)
            ready = dict(poller.poll(RECHECK_MS if is_blocking else None))
            if is_blocking or self._guard.fileno() in ready:
                self._guard.update()
            if self._socket in ready:
                return


def member_of(frame: zmq.Frame) -> str | None:
    """The name of the member that owns the key of a frame's connection; None without a key."""
    try:
        return str(frame.get("User-Id")) or None
    except zmq.ZMQError:
        return None
