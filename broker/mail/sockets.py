"""What stands around the ZeroMQ sockets of one process: keys, heartbeats, a doorman, a monitor on each.

It opens sockets and tells what happens to them; what follows from that is its owner's business. Of use wherever
processes of a run meet over TCP, not for SIPs' mail alone.
"""

import contextlib
import itertools
import struct
import time
from collections import deque
from collections.abc import Iterator, Mapping

import zmq

from broker.mail.base import JOIN_TIMEOUT_S, SILENCE_S, Notice
from broker.mail.connections import EVENTS, Connection, Listener
from broker.mail.zmq_mail import plain_socket
from broker.security.keys import KeyPair, MemberKeys, check_bind, is_tcp
from broker.security.zap import DOMAIN, ZapAuthenticator, member_of

RECONNECT_TCP_MS = 100
RECONNECT_TCP_MOST_MS = 1000
HANDSHAKE_MS = 5000
CONNECT_MS = 5000
HEARTBEAT_MS = 250
MOST_NOTICES = 1000
"""Older ones go: strangers cannot fill the memory."""
_EVENT = struct.Struct("=Hi")
_NUMBERS = itertools.count()


class _Monitored:
    """A socket and the stream of its events.

    libzmq's own threads wait for ever when they cannot hand over an event: hence no limit on the queue, and an end
    to monitoring before the end of who listens to it (libzmq#3575, #2829).
    """

    def __init__(self, context: "zmq.Context[zmq.Socket[bytes]]", kind: int) -> None:
        self.socket = plain_socket(context, kind)
        self.monitor = context.socket(zmq.PAIR)
        self.monitor.set_hwm(0)
        # Never one of before: libzmq lets go of an address some time after its socket is closed.
        address = f"inproc://monitor-{next(_NUMBERS)}"
        try:
            self.socket.monitor(address, EVENTS)
            self.monitor.connect(address)
        except zmq.ZMQError:
            self.monitor.close(0)
            self.socket.close(0)
            raise

    def events(self) -> list[tuple[int, int]]:
        """New events, and the number that each came with."""
        found = []
        try:
            while True:
                found.append(_EVENT.unpack(self.monitor.recv_multipart(zmq.NOBLOCK)[0]))
        except zmq.Again:
            return found

    def close(self, linger_ms: int | None = None) -> None:
        """Stop looking, and close."""
        self.socket.monitor(None, 0)
        self.monitor.close(0)
        self.socket.close(linger_ms)


class ClientSocket(_Monitored):
    """A socket that is connected to one other end, and what became of that connection."""

    def __init__(self, context: "zmq.Context[zmq.Socket[bytes]]", kind: int, connection: Connection) -> None:
        super().__init__(context, kind)
        self.connection = connection

    def send(self, frame: bytes) -> None:
        """Send without blocking. To where libzmq has given up, for good, nothing can be sent; a look will tell why."""
        with contextlib.suppress(zmq.Again):
            self.socket.send(frame, zmq.NOBLOCK)

    def look(self) -> Notice | None:
        """Take the new events; why the connection is gone, if it is."""
        for event in self.events():
            self.connection.note(*event)
        if self.connection.until_s is not None:
            self.connection.look(time.monotonic())
        return self.connection.gone


class ServerSocket(_Monitored):
    """A socket that others connect to."""

    def __init__(self, context: "zmq.Context[zmq.Socket[bytes]]", kind: int) -> None:
        super().__init__(context, kind)
        self._listener = Listener(lambda: self.endpoint)

    @property
    def endpoint(self) -> str:
        """Where it listens, a port that the system chose included."""
        return self.socket.getsockopt_string(zmq.LAST_ENDPOINT)

    def look(self) -> list[Notice]:
        """Take the new events; what is worth telling."""
        found = [self._listener.note(event) for event, _ in self.events()]
        return [notice for notice in found if notice is not None]


class SocketFactory:
    """Opens the sockets of one process. ``keys``: its part of the run's; None for none.

    ``members``: who may connect to it: public keys and the names by which :func:`member_of` then knows their frames.
    ``silence_s``: after how long a silent connection over TCP is lost, None for never; ``join_timeout_s``: how long
    another end may take to answer at all, if silence means anything.
    """

    def __init__(
        self,
        keys: MemberKeys | None,
        members: Mapping[str, str],
        silence_s: float | None = SILENCE_S,
        join_timeout_s: float = JOIN_TIMEOUT_S,
    ) -> None:
        self.context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._keys = keys
        self._members = members
        self._silence_s = silence_s
        self._join_timeout_s = join_timeout_s
        self._doorman: ZapAuthenticator | None = None
        self._open: list[ClientSocket | ServerSocket] = []
        self._notices: deque[Notice] = deque(maxlen=MOST_NOTICES)

    def connect(self, kind: int, who: int, endpoint: str, server_key: str | None, name: bytes = b"") -> ClientSocket:
        """A socket to ``who``, who listens and must have ``server_key``; ``name`` is our routing id.

        Raises:
            zmq.ZMQError: for what is no endpoint; everything is released then.
        """
        until_s = time.monotonic() + self._join_timeout_s if self._silence_s is not None else None
        way = ClientSocket(
            self.context, kind, Connection(who, endpoint, self._keys is not None, until_s, self._join_timeout_s)
        )
        self._open.append(way)
        with self._all_or_nothing():
            self._prepare(way.socket, endpoint)
            if name:
                way.socket.setsockopt(zmq.IDENTITY, name)
            if self._keys is not None:
                assert server_key is not None
                _show(way.socket, self._keys.own)
                way.socket.setsockopt_string(zmq.CURVE_SERVERKEY, server_key)
            way.socket.connect(endpoint)
        return way

    def listen(self, kind: int, endpoint: str) -> ServerSocket:
        """A socket that members can connect to.

        Raises:
            ValueError: where others could.
            zmq.ZMQError: where nobody can listen. In both cases everything is released.
        """
        with self._all_or_nothing():
            check_bind(endpoint, self._keys, plain_loopback=True)
            if self._keys is not None and self._doorman is None:
                self._doorman = ZapAuthenticator(self.context, self._members, self._turned_away)
            door = ServerSocket(self.context, kind)
            self._open.append(door)
            self._prepare(door.socket, endpoint)
            if self._keys is not None:
                _show(door.socket, self._keys.own)
                door.socket.setsockopt(zmq.CURVE_SERVER, 1)
                door.socket.setsockopt_string(zmq.ZAP_DOMAIN, DOMAIN)
                # Without this a doorman who has died would be one who lets everybody in.
                door.socket.setsockopt(zmq.ZAP_ENFORCE_DOMAIN, 1)
            door.socket.bind(endpoint)
        return door

    def tell(self, notice: Notice) -> None:
        """Keep a notice for whoever asks."""
        self._notices.append(notice)

    def notices(self) -> list[Notice]:
        """What was kept since this was last asked."""
        found = []
        while self._notices:
            found.append(self._notices.popleft())
        return found

    def drop(self, way: ClientSocket) -> None:
        """Close one socket, and forget what is queued there."""
        self._open.remove(way)
        way.close(0)

    def close(self, linger_ms: int | None = None) -> None:
        """Release everything; what is queued has ``linger_ms`` to go out (None: the usual)."""
        for each in self._open:
            each.close(linger_ms)
        self._open.clear()
        self.context.term()
        if self._doorman is not None:
            self._doorman.join()

    @contextlib.contextmanager
    def _all_or_nothing(self) -> Iterator[None]:
        try:
            yield
        except (zmq.ZMQError, ValueError):
            self.close(0)
            raise

    def _turned_away(self, where: str, why: str) -> None:
        self.tell(Notice("stranger", None, where, f"somebody at {where} came {why}, and was turned away"))

    def _prepare(self, socket: "zmq.Socket[bytes]", endpoint: str) -> None:
        socket.setsockopt(zmq.HANDSHAKE_IVL, HANDSHAKE_MS)
        if not is_tcp(endpoint):
            return
        socket.setsockopt(zmq.RECONNECT_IVL, RECONNECT_TCP_MS)
        socket.setsockopt(zmq.RECONNECT_IVL_MAX, RECONNECT_TCP_MOST_MS)
        socket.setsockopt(zmq.CONNECT_TIMEOUT, CONNECT_MS)
        if "[" in endpoint:
            socket.setsockopt(zmq.IPV6, 1)
        if self._silence_s is not None:
            silence_ms = int(self._silence_s * 1000)
            socket.setsockopt(zmq.HEARTBEAT_IVL, HEARTBEAT_MS)
            socket.setsockopt(zmq.HEARTBEAT_TIMEOUT, silence_ms)
            socket.setsockopt(zmq.HEARTBEAT_TTL, silence_ms)


def _show(socket: "zmq.Socket[bytes]", own: KeyPair) -> None:
    socket.setsockopt_string(zmq.CURVE_PUBLICKEY, own.public)
    socket.setsockopt_string(zmq.CURVE_SECRETKEY, own.secret)


__all__ = ["ClientSocket", "ServerSocket", "SocketFactory", "member_of"]
