"""The ZeroMQ sockets of one process: limits, keys, heartbeats, an authenticator, and a monitor on each socket.

A socket reports the events of its connections, and the owner of the socket decides what to do. The mail uses these
sockets, as do the launcher and its agents.
"""

import contextlib
import itertools
import struct
import sys
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Literal, TextIO

import zmq

from broker.ids import BROKER, LAUNCHER, MAX_FRAME_BYTES
from broker.mail.base import JOIN_TIMEOUT_S, SILENCE_S, Notice, NoticeKind
from broker.security import (
    DOMAIN,
    AcceptGuard,
    KeyPair,
    MemberKeys,
    ZapAuthenticator,
    check_bind,
    is_tcp,
    retry_with_spares,
)

MAX_WARNINGS = 100


class ConnectionWarnings:
    """The warnings of one process about rejected connections and frames, for the broker's log or the launcher's output.

    A warning is one line that starts with ``prefix``. A repeated warning is written the first, tenth, hundredth time
    and so on, with the number of times. After ``MAX_WARNINGS`` lines, a last line states that no more follow.
    """

    def __init__(self, prefix: str, out: TextIO | None = None) -> None:
        self._prefix = prefix
        self._out = out
        self._written = 0
        self._times: Counter[str] = Counter()

    def write(self, notices: Iterable[Notice]) -> None:
        """Print the notices of rejections. Lost connections are not printed: every run ends with lost connections."""
        for notice in notices:
            if notice.kind != "rejected" or self._written > MAX_WARNINGS:
                continue
            self._times[notice.text] += 1
            times = str(self._times[notice.text])
            if times.strip("0") == "1":
                self._written += 1
                text = notice.text if times == "1" else f"{notice.text} ({times} times)"
                if self._written > MAX_WARNINGS:
                    text = f"after {MAX_WARNINGS} warnings, further rejections are not reported"
                print(f"{self._prefix}: {text}", file=self._out or sys.stderr, flush=True)


EVENTS = (
    zmq.EVENT_LISTENING
    | zmq.EVENT_HANDSHAKE_SUCCEEDED
    | zmq.EVENT_HANDSHAKE_FAILED_AUTH
    | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
    | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
    | zmq.EVENT_DISCONNECTED
)
MAX_FAILURES = 3
"""Consecutive failed handshakes that count as a refusal; fewer occur while the other end starts or exits."""
_OTHER_PROGRAM = "does not speak this protocol: another program or another version listens there; check the endpoint"
_TICKET = "use the ticket that was written for this run"
_WANTS_A_KEY = f"requires a key: {_TICKET}"


class Connection:
    """The state of a connection of this process to the listening ``peer``. ``gone``: why the connection ended. Pure.

    Only ZeroMQ's monitor events show a client that the server refused it. Without events, a client without a key, or
    with a wrong server key, would retry forever without a message.

    ``until_s``: deadline of the handshake in s on the caller's clock, or None. ``timeout_s``: the limit, for messages.
    ``has_keys``: whether this process uses a key.
    """

    def __init__(self, peer: int, endpoint: str, has_keys: bool, until_s: float | None, timeout_s: float) -> None:
        self.gone: Notice | None = None
        self._peer = peer
        self._endpoint = endpoint
        self._has_keys = has_keys
        self._timeout_s = timeout_s
        self._until_s = until_s
        self._state: Literal["trying", "up"] = "trying"
        self._failures = 0
        self._retries = False

    @property
    def until_s(self) -> float | None:
        """The deadline of the handshake in seconds; None if the handshake is over or has no deadline."""
        return self._until_s if self._state == "trying" and self.gone is None else None

    def note(self, event: int, number: int) -> None:
        """Update the state by one monitor event; ``number`` is the value that libzmq gives with the event."""
        match event:
            case zmq.EVENT_HANDSHAKE_SUCCEEDED:
                self._state = "up"
            case zmq.EVENT_HANDSHAKE_FAILED_AUTH:
                self.refuse(f"refused this process's key: {_TICKET}")
            case zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL:
                # libzmq does not retry after this event.
                mismatch = number == zmq.PROTOCOL_ERROR_ZMTP_MECHANISM_MISMATCH
                no_key = f"has no key, but this process expects a key: {_TICKET}" if self._has_keys else _WANTS_A_KEY
                self.refuse(no_key if mismatch else _OTHER_PROGRAM)
            case zmq.EVENT_DISCONNECTED if self._state == "up":
                self._end("lost", f"the connection to {self._peer_name} is lost: process, host or network failed")
            case zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL:
                self._retries = True
                self._failures += 1
                if self._failures >= MAX_FAILURES:
                    differs = f"aborts every handshake: its key differs from the key in the ticket; {_TICKET}"
                    # Without a key, libzmq reports this event or the mismatch, depending on how fast the server closes.
                    self.refuse(differs if self._has_keys else _WANTS_A_KEY)
            case zmq.EVENT_DISCONNECTED if self._retries:
                self._retries = False
            case zmq.EVENT_DISCONNECTED:
                # The only event when another program answers; libzmq does not retry after it.
                self.refuse(_OTHER_PROGRAM)

    def check_deadline(self, now_s: float) -> None:
        """End the connection if the handshake is pending at its deadline."""
        if self.until_s is not None and now_s >= self.until_s:
            late = f"{self._peer_name} did not answer within {self._timeout_s:g} s: it has not been started, has ended"
            self._end("not_joined", f"{late}, or cannot be reached from this host")

    def refuse(self, text: str) -> None:
        """End the connection because the other end does not accept this process; ``text``: predicate of the message."""
        self._end("refused", f"{self._peer_name} {text}")

    @property
    def _peer_name(self) -> str:
        name = {BROKER: "the broker", LAUNCHER: "the launcher"}.get(self._peer, f"SIP {self._peer}")
        return f"{name} at {self._endpoint}"

    def _end(self, kind: NoticeKind, text: str) -> None:
        if self.gone is None:
            self.gone = Notice(kind, self._peer, self._endpoint, text)


class Listener:
    """The state of the connections to a socket that listens. Pure.

    Events do not name their connection, so ``DISCONNECTED`` is attributed by counting. A failed handshake is followed
    at once by its ``DISCONNECTED``; another program's bytes cause ``DISCONNECTED`` only. Clients that failed
    authentication are not reported here: the authenticator reports such clients with more detail.
    """

    def __init__(self, endpoint: Callable[[], str]) -> None:
        self._endpoint = endpoint
        self._up = 0
        self._unauthorized = 0
        self._failed = False

    def note(self, event: int) -> Notice | None:
        """Update the state by one monitor event; return the notice that the event causes, or None."""
        match event:
            case zmq.EVENT_HANDSHAKE_SUCCEEDED:
                self._up += 1
            case zmq.EVENT_HANDSHAKE_FAILED_AUTH:
                self._unauthorized += 1
            case zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL:
                self._failed = True
            case zmq.EVENT_DISCONNECTED:
                return self._disconnected()
        return None

    def _disconnected(self) -> Notice | None:
        failed, self._failed = self._failed, False
        endpoint = self._endpoint()
        if not failed and self._unauthorized:
            self._unauthorized -= 1
            return None
        if failed or not self._up:
            reason = "the client had no key or a wrong server key, is another program, or was silent"
            return Notice("rejected", None, endpoint, f"rejected a connection to {endpoint}: {reason}")
        self._up -= 1
        return Notice("lost", None, endpoint, f"a connection to {endpoint} has ended")


LINGER_MS = 5000
RECONNECT_MS = 5
HANDSHAKE_MS = 5000
_TCP_OPTIONS = {zmq.RECONNECT_IVL: 100, zmq.RECONNECT_IVL_MAX: 1000, zmq.CONNECT_TIMEOUT: 5000}
HEARTBEAT_MS = 250
MAX_NOTICES = 1000
"""Bound on stored notices; the oldest are dropped, so that rejected clients cannot fill the memory."""
REJECTED = b""
"""The first part of the broker's reply to a process whose frames are rejected; the second part is the reason."""
MAX_REASON_BYTES = 500
_EVENT = struct.Struct("=Hi")
_MONITOR_NUMBERS = itertools.count()
Context = zmq.Context[zmq.Socket[bytes]]


class _Socket:
    """A ZeroMQ socket and, if ``monitored``, the stream of connection events of the socket.

    Both queues are unbounded. A sender that blocked on a full frame queue would wait for a receiver that waits for the
    broker; credits of the simulated queues bound the frames in flight. libzmq's threads would block on a full event
    queue, so monitoring also ends before the socket closes (libzmq#3575, #2829).
    """

    monitor: "zmq.Socket[bytes]"

    def __init__(self, context: Context, kind: int, monitored: bool) -> None:
        self.socket = context.socket(kind)
        self._is_monitored = monitored
        self.socket.set_hwm(0)
        self.socket.setsockopt(zmq.LINGER, LINGER_MS)
        self.socket.setsockopt(zmq.MAXMSGSIZE, MAX_FRAME_BYTES)
        self.socket.setsockopt(zmq.RECONNECT_IVL, RECONNECT_MS)
        if kind == zmq.ROUTER:
            self.socket.setsockopt(zmq.ROUTER_MANDATORY, 1)
            self.socket.setsockopt(zmq.ROUTER_HANDOVER, 0)
        if monitored:
            self._start_monitor(context)

    def _start_monitor(self, context: Context) -> None:
        self.monitor = context.socket(zmq.PAIR)
        self.monitor.set_hwm(0)
        # Addresses are not reused: libzmq releases an address some time after its socket is closed.
        address = f"inproc://monitor-{next(_MONITOR_NUMBERS)}"
        try:
            self.socket.monitor(address, EVENTS)
            self.monitor.connect(address)
        except zmq.ZMQError:
            self.monitor.close(0)
            self.socket.close(0)
            raise

    def events(self) -> list[tuple[int, int]]:
        """Return the new monitor events, as (event, value)."""
        events = []
        try:
            while True:
                events.append(_EVENT.unpack(self.monitor.recv_multipart(zmq.NOBLOCK)[0]))
        except zmq.Again:
            return events

    def close(self, linger_ms: int | None = None) -> None:
        """End monitoring and close the socket; queued frames have ``linger_ms`` to leave, by default ``LINGER_MS``."""
        if self._is_monitored:
            self.socket.monitor(None, 0)
            self.monitor.close(0)
        self.socket.close(linger_ms)


class ClientSocket(_Socket):
    """A socket that connects to one server, and the state of the connection."""

    def __init__(self, context: Context, kind: int, monitored: bool, connection: Connection) -> None:
        super().__init__(context, kind, monitored)
        self.connection = connection
        self.send: Callable[[bytes], object] = self._send_now if monitored else self.socket.send

    def _send_now(self, frame: bytes) -> None:
        """Send without blocking. The frame is dropped if libzmq has given up connecting (see ``poll_events``)."""
        with contextlib.suppress(zmq.Again):
            self.socket.send(frame, zmq.NOBLOCK)

    def receive_now(self) -> bytes | None:
        """Return a frame that has arrived, or None. Messages in parts are dropped; a rejection ends the connection."""
        while True:
            try:
                frame = self.socket.recv(zmq.NOBLOCK)
            except zmq.Again:
                return None
            if not self.socket.getsockopt(zmq.RCVMORE):
                return frame
            rest = self.socket.recv_multipart()
            if frame == REJECTED and len(rest) == 1:
                reason = rest[0][:MAX_REASON_BYTES].decode(errors="replace")
                self.connection.refuse("".join(c if c.isprintable() else " " for c in reason))

    def poll_events(self) -> Notice | None:
        """Take the new events; return the notice of the connection's end, or None."""
        for event in self.events():
            self.connection.note(*event)
        if self.connection.until_s is not None:
            self.connection.check_deadline(time.monotonic())
        return self.connection.gone


class ServerSocket(_Socket):
    """A socket that listens for other processes."""

    def __init__(self, context: Context, kind: int, monitored: bool) -> None:
        super().__init__(context, kind, monitored)
        self._listener = Listener(lambda: self.endpoint)

    def descriptor(self) -> int:
        """The file descriptor of the listening socket; call this method once, after binding."""
        return next(value for event, value in self.events() if event == zmq.EVENT_LISTENING)

    @property
    def endpoint(self) -> str:
        """The endpoint at which this socket listens, with the port number that the system chose."""
        return self.socket.getsockopt_string(zmq.LAST_ENDPOINT)

    def poll_events(self) -> list[Notice]:
        """Take the new events; return the notices that these events cause."""
        return [notice for event, _ in self.events() if (notice := self._listener.note(event)) is not None]


class SocketFactory:
    """Opens the sockets of one process.

    ``keys``: the keys of this process, or None. ``members``: the public key of each process that may connect, with
    the name that :func:`broker.security.member_of` returns for its frames. ``silence_s``, ``join_timeout_s``: as in
    ``MailOptions``. ``monitored``: whether connections are monitored, which endpoints in a private folder do not need.
    """

    def __init__(
        self,
        keys: MemberKeys | None,
        members: Mapping[str, str],
        silence_s: float | None = SILENCE_S,
        join_timeout_s: float = JOIN_TIMEOUT_S,
        monitored: bool = True,
    ) -> None:
        self._context: Context = zmq.Context()
        self._keys = keys
        self._members = members
        self._silence_s = silence_s
        self._join_timeout_s = join_timeout_s
        self._monitored = monitored
        self._authenticator: ZapAuthenticator | None = None
        self._open: list[ClientSocket | ServerSocket] = []
        self._notices: deque[Notice] = deque(maxlen=MAX_NOTICES)

    def connect(self, kind: int, peer: int, endpoint: str, server_key: str | None, name: bytes = b"") -> ClientSocket:
        """Return a socket to the listening ``peer``, which must have ``server_key``. ``name``: routing id of this end.

        Raises:
            zmq.ZMQError: for a malformed endpoint; all sockets of the factory are released.
        """
        until_s = time.monotonic() + self._join_timeout_s if self._silence_s is not None else None
        connection = Connection(peer, endpoint, self._keys is not None, until_s, self._join_timeout_s)
        client = retry_with_spares(lambda: ClientSocket(self._context, kind, self._monitored, connection))
        self._open.append(client)
        with self._all_or_nothing():
            self._prepare(client.socket, endpoint)
            if name:
                client.socket.setsockopt(zmq.IDENTITY, name)
            if self._keys is not None:
                assert server_key is not None
                _use_key(client.socket, self._keys.own)
                client.socket.setsockopt_string(zmq.CURVE_SERVERKEY, server_key)
            client.socket.connect(endpoint)
        return client

    def listen(self, kind: int, endpoint: str) -> ServerSocket:
        """Return a socket at ``endpoint`` that members can connect to.

        Raises:
            ValueError: when other processes than the members could connect too.
            zmq.ZMQError: when this process cannot listen at ``endpoint``. Both errors release all sockets.
        """
        with self._all_or_nothing():
            check_bind(endpoint, self._keys, plain_loopback=True)
            assert self._authenticator is None, "a factory listens once"
            if self._keys is not None:
                self._authenticator = ZapAuthenticator(self._context, self._members, self._rejected)
            server = ServerSocket(self._context, kind, self._monitored)
            self._open.append(server)
            self._prepare(server.socket, endpoint)
            if self._keys is not None:
                _use_key(server.socket, self._keys.own)
                server.socket.setsockopt(zmq.CURVE_SERVER, 1)
                server.socket.setsockopt_string(zmq.ZAP_DOMAIN, DOMAIN)
                # Without this libzmq accepts every client once the ZAP socket is closed.
                server.socket.setsockopt(zmq.ZAP_ENFORCE_DOMAIN, 1)
            server.socket.bind(endpoint)
            if self._authenticator is not None:
                has_guard = self._monitored and is_tcp(endpoint)
                self._authenticator.start(AcceptGuard(server.descriptor(), self._blocked) if has_guard else None)
        return server

    def note(self, notices: Iterable[Notice]) -> None:
        """Store notices for :meth:`notices`."""
        self._notices.extend(notices)

    def notices(self) -> list[Notice]:
        """Return and remove the stored notices."""
        # The authenticator's thread may add notices meanwhile.
        return [self._notices.popleft() for _ in range(len(self._notices))]

    def drop(self, client: ClientSocket) -> None:
        """Close one socket and discard the frames queued in it."""
        self._open.remove(client)
        client.close(0)

    def close(self, linger_ms: int | None = None) -> None:
        """Release everything; queued frames have ``linger_ms`` to leave, by default ``LINGER_MS``."""
        for each in self._open:
            each.close(linger_ms)
        self._open.clear()
        if self._authenticator is not None:
            self._authenticator.close()
        self._context.term()

    @contextlib.contextmanager
    def _all_or_nothing(self) -> Iterator[None]:
        try:
            yield
        except (zmq.ZMQError, ValueError):
            self.close(0)
            raise

    def _blocked(self, limit: int) -> None:
        cause = f"unknown clients hold nearly all of the {limit} files that ulimit -n allows"
        self.note([Notice("rejected", None, "", f"{cause}; new connections wait until some of these clients are gone")])

    def _rejected(self, address: str, reason: str) -> None:
        self.note([Notice("rejected", None, address, f"rejected a connection from {address}: {reason}")])

    def _prepare(self, socket: "zmq.Socket[bytes]", endpoint: str) -> None:
        if self._monitored:
            socket.setsockopt(zmq.HANDSHAKE_IVL, HANDSHAKE_MS)
        if not is_tcp(endpoint):
            return
        for option, value in _TCP_OPTIONS.items():
            socket.setsockopt(option, value)
        if "[" in endpoint:
            socket.setsockopt(zmq.IPV6, 1)
        if self._silence_s is not None:
            socket.setsockopt(zmq.HEARTBEAT_IVL, HEARTBEAT_MS)
            for option in (zmq.HEARTBEAT_TIMEOUT, zmq.HEARTBEAT_TTL):
                socket.setsockopt(option, int(self._silence_s * 1000))


def _use_key(socket: "zmq.Socket[bytes]", own: KeyPair) -> None:
    socket.setsockopt_string(zmq.CURVE_PUBLICKEY, own.public)
    socket.setsockopt_string(zmq.CURVE_SECRETKEY, own.secret)
