"""Who may connect to a process of a run: CURVE keys, places to listen at, and the checks of a listening socket.

A run has a fresh CURVE key pair for each member. A member receives its own pair and the public keys of its peers, never
another's secret: the ticket of a SIP authenticates as that SIP only. One bootstrap for all hosts (Slurm, mpiexec,
Kubernetes) holds the pairs of all agents; SIPs and the broker accept no agent's key. Keys are Z85 text, so that tickets
carry them as JSON. No ``repr`` shows a secret.
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


def check_bind(endpoint: str, keys: MemberKeys | None, plain_loopback: bool = False) -> None:
    """Check that only members of the run can connect to ``endpoint``.

    Allowed are files in a folder of this user that no other user can enter, TCP with keys, and with ``plain_loopback``
    TCP on this host without keys. ZeroMQ mail allows that one; no engine listens so.

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
        found = os.stat(folder)
    except OSError as error:
        raise ValueError(f"{endpoint}: cannot read {folder}: {error.strerror}") from None
    if not stat.S_ISDIR(found.st_mode):
        raise ValueError(f"{endpoint}: {folder} is not a folder")
    if found.st_uid != os.geteuid():
        raise ValueError(f"{endpoint}: {folder} belongs to user {found.st_uid}; use a folder of your own, mode 0700")
    if found.st_mode & 0o077:
        mode = stat.S_IMODE(found.st_mode)
        raise ValueError(f"{endpoint}: other users can enter {folder} (mode {mode:04o}); chmod it to 0700")


SPARES = 16
MARGIN = 8
"""Files that are left besides the spares when the door is shut, and twice when it opens."""
MOST_WAITING = 1000
"""Connections that wait to be accepted and are closed when the door is shut."""
OPEN_FILES = "/proc/self/fd"
LOOK_MS = 200
"""How often a door that is shut is looked at."""
_RETURN_0 = struct.pack("=HBBI", 0x06, 0, 0, 0)
"""A program of the classic packet filter: nothing passes."""
_SO_ATTACH_FILTER, _SO_DETACH_FILTER = 26, 27
_DOORS: "set[Door]" = set()
Thing = TypeVar("Thing")


def make_room() -> bool:
    """Shut all doors of this process, where it has no file left; whether that has made room."""
    have = [door.shut() for door in list(_DOORS)]
    return any(have)


def with_room(take: Callable[[], Thing]) -> Thing:
    """The result of ``take``, which opens files; it is called once more if strangers held all files of this process."""
    try:
        return take()
    except Exception as error:
        if getattr(error, "errno", None) != errno.EMFILE or not make_room():
            raise
        return take()


class Door:
    """The guard of a listening TCP socket ``fd``, which another object owns: shut while few open files are left.

    libzmq accepts every connection and holds it for the time of a handshake, so whoever connects often enough takes all
    files of a process, and then its own work fails. A door keeps some files as spares. Where connections would take the
    last ones besides, the door is shut: the kernel drops what asks for a new connection (which a member's system
    repeats), those that wait are closed, and the spares are there for this process. The door opens when strangers have
    gone.

    ``on_shut`` is called with the limit of open files when the door is shut for the first time, by any thread.
    """

    def __init__(self, fd: int, on_shut: Callable[[int], None]) -> None:
        self._socket = socket.socket(fileno=os.dup(fd))
        self._socket.setblocking(False)
        self._on_shut = on_shut
        self._lock = threading.Lock()
        self._spares: list[int] = []
        self._is_shut = False
        self._was_shut = False
        self._take_spares()
        _DOORS.add(self)

    def fileno(self) -> int:
        """The socket's descriptor: readable when a connection is to be accepted."""
        return self._socket.fileno()

    @property
    def is_shut(self) -> bool:
        """Whether no connection is let in."""
        return self._is_shut

    def look(self) -> None:
        """Shut it, or open it again, if it is time."""
        left = _left()
        if left < MARGIN:
            self.shut()
        elif self._is_shut and left >= SPARES + 2 * MARGIN:
            self._open()

    def shut(self) -> bool:
        """Let nobody in, and give the spares back; whether there were any."""
        with self._lock:
            had_spares = bool(self._spares)
            if not self._is_shut:
                self._is_shut = True
                self._refuse()
            for fd in self._spares:
                os.close(fd)
            self._spares.clear()
            is_first, self._was_shut = not self._was_shut, True
        if is_first:
            self._on_shut(_limit())
        return had_spares

    def close(self) -> None:
        """Leave the socket as it is."""
        _DOORS.discard(self)
        with self._lock:
            for fd in self._spares:
                os.close(fd)
            self._spares.clear()
            self._socket.close()

    def _open(self) -> None:
        with self._lock:
            self._is_shut = False
            self._take_spares()
            with contextlib.suppress(OSError):
                self._socket.setsockopt(socket.SOL_SOCKET, _SO_DETACH_FILTER, 0)

    def _refuse(self) -> None:
        program = ctypes.create_string_buffer(_RETURN_0)
        filter_ = struct.pack("@HP", 1, ctypes.addressof(program))
        # A system without such filters has strangers take what they can; the spares are there all the same.
        with contextlib.suppress(OSError):
            self._socket.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, filter_)
        if self._spares:
            os.close(self._spares.pop())
        with contextlib.suppress(OSError):
            for _ in range(MOST_WAITING):
                self._socket.accept()[0].close()

    def _take_spares(self) -> None:
        with contextlib.suppress(OSError):
            while len(self._spares) < SPARES:
                self._spares.append(os.dup(self._socket.fileno()))


def _left() -> int:
    """How many more files this process can open; many where that is not known."""
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
    """Accepts the clients of one context that have a key of ``members`` (Z85 to name), while the context lives.

    The protocol is ZAP, ZeroMQ's RFC 27. This class replaces pyzmq's ``ThreadAuthenticator`` (27.3), which must be
    stopped before its context is terminated, or ``term`` blocks forever; which writes rejections to a debug log without
    the client's address; and whose import of asyncio doubles the start time of a process. It is a thread because a SIP
    may compute for minutes without receiving, while peers connect. It waits in a receive without the GIL, and ends with
    its context. libzmq accepts every client once the ZAP socket is closed, unless the domain is enforced
    (``ZAP_ENFORCE_DOMAIN``).

    libzmq attaches the name to every frame of the connection (``User-Id``). ``on_rejected`` is called, in this thread,
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
        # A shadow context: closing the original must not close this socket from another thread than its own.
        self._socket: zmq.Socket[bytes] = zmq.Context.shadow(context.underlying).socket(zmq.REP)
        self._socket.setsockopt(zmq.LINGER, 0)
        self._socket.bind(ENDPOINT)
        self._thread = threading.Thread(target=self._serve, name="zap", daemon=True)
        self._door: Door | None = None

    def start(self, door: Door | None = None) -> None:
        """Begin to answer requests. ``door``: the guard of the listening socket, which this thread opens and shuts."""
        self._door = door
        self._thread.start()

    def close(self) -> None:
        """Terminate the context, all other sockets of which are closed, and wait for the thread."""
        if self._thread.ident is None:
            self._socket.close()
        self._context.term()
        if self._thread.ident is not None:
            self._thread.join()

    def answer(self, request: list[bytes]) -> list[bytes]:
        """The reply to one request of libzmq."""
        number = request[1] if len(request) > 1 else b""
        name, why = self._decide(request)
        if name is None:
            self._on_rejected(request[3].decode(errors="replace") if len(request) > 3 else "", why)
            return [_VERSION, number, b"400", b"not of this run", b"", b""]
        return [_VERSION, number, b"200", b"", name, b""]

    def _decide(self, request: list[bytes]) -> tuple[bytes | None, str]:
        if len(request) != 7 or request[0] != _VERSION or request[2] != DOMAIN.encode():
            return None, "its authentication request is malformed"
        if request[5] != b"CURVE":
            return None, "it has no key"
        return self._names.get(request[6]), "its key is not of this run"

    def _serve(self) -> None:
        try:
            while True:
                self._watch()
                self._socket.send_multipart(self.answer(self._socket.recv_multipart()))
        except zmq.ContextTerminated:
            pass
        finally:
            self._socket.close()
            if self._door is not None:
                self._door.close()

    def _watch(self) -> None:
        """Look at the door whenever a connection comes, until there is a request."""
        while self._door is not None:
            poller = zmq.Poller()
            poller.register(self._socket, zmq.POLLIN)
            # What a shut door keeps out may still wait there.
            is_shut = self._door.is_shut
            if not is_shut:
                poller.register(self._door, zmq.POLLIN)
            found = dict(poller.poll(LOOK_MS if is_shut else None))
            if is_shut or self._door.fileno() in found:
                self._door.look()
            if self._socket in found:
                return


def member_of(frame: zmq.Frame) -> str | None:
    """The name of the member whose key a frame arrived with, None without one."""
    try:
        return str(frame.get("User-Id")) or None
    except zmq.ZMQError:
        return None
