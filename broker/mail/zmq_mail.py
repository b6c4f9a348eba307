"""Mail over ZeroMQ: a DEALER to the broker's ROUTER, and one PUSH to PULL stream for each ordered pair of SIPs.

Queues are unbounded on purpose: a sender that blocked on a full pipe would wait for a receiver that waits for
the broker. What is in flight is bounded by the credits of the simulated queues.
"""

import contextlib
from collections.abc import Iterator

import zmq

from broker.ids import BROKER, LAUNCHER, MAX_ADDRESS, MAX_FRAME_BYTES
from broker.mail.base import NoConnectionEvents

LINGER_MS = 5000
RECONNECT_MS = 5
LAUNCHER_NAME = b"launcher"
MAX_DIGITS = len(str(MAX_ADDRESS))


def sip_name(address: int) -> bytes:
    """The routing id of one incarnation of a rank."""
    return b"sip-%d" % address


def sender_of(name: bytes) -> int | None:
    """The address of a SIP, or ``LAUNCHER``, behind a routing id; None for a stranger."""
    if name == LAUNCHER_NAME:
        return LAUNCHER
    digits = name.removeprefix(b"sip-")
    known = name.startswith(b"sip-") and len(digits) <= MAX_DIGITS and digits.isdigit()
    return int(digits) if known and int(digits) <= MAX_ADDRESS else None


def plain_socket(context: "zmq.Context[zmq.Socket[bytes]]", kind: int) -> "zmq.Socket[bytes]":
    """A socket as it is within a private folder."""
    socket = context.socket(kind)
    socket.set_hwm(0)
    socket.setsockopt(zmq.LINGER, LINGER_MS)
    socket.setsockopt(zmq.MAXMSGSIZE, MAX_FRAME_BYTES)
    socket.setsockopt(zmq.RECONNECT_IVL, RECONNECT_MS)
    if kind == zmq.ROUTER:
        socket.setsockopt(zmq.ROUTER_MANDATORY, 1)
        socket.setsockopt(zmq.ROUTER_HANDOVER, 0)
    return socket


def _bind(socket: "zmq.Socket[bytes]", endpoint: str, context: "zmq.Context[zmq.Socket[bytes]]") -> None:
    """Listen, or release everything."""
    try:
        socket.bind(endpoint)
    except zmq.ZMQError:
        context.destroy(linger=0)
        raise


class ZmqEnd(NoConnectionEvents):
    """The dealing end of one participant: sends to the broker and receives from it. The launcher needs no more."""

    def __init__(self, name: bytes, broker_endpoint: str) -> None:
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._dealer = plain_socket(self._context, zmq.DEALER)
        self._dealer.setsockopt(zmq.IDENTITY, name)
        self._dealer.connect(broker_endpoint)

    @property
    def pollable(self) -> "zmq.Socket[bytes]":
        """For a ``zmq.Poller``."""
        return self._dealer

    @property
    def unsent(self) -> bool:
        """ZeroMQ keeps and sends what cannot be sent yet."""
        return False

    def send(self, to: int, frame: bytes) -> None:
        """Send to the broker, the only destination of this end."""
        assert to == BROKER
        self._dealer.send(frame)

    def receive_waiting(self) -> Iterator[bytes]:
        """Frames that are here already."""
        with contextlib.suppress(zmq.Again):
            while True:
                yield self._dealer.recv(zmq.NOBLOCK)

    def close(self) -> None:
        """Send what is queued and release everything."""
        self._dealer.close()
        self._context.term()

    def close_now(self) -> None:
        """Release everything; what is queued for a broker that may be gone is dropped."""
        self._context.destroy(linger=0)


class ZmqSipMail(ZmqEnd):
    """The mail of one SIP. It listens on ``endpoint`` from the start and connects to a peer on the first packet."""

    def __init__(self, address: int, broker_endpoint: str, endpoint: str) -> None:
        super().__init__(sip_name(address), broker_endpoint)
        self._pull = plain_socket(self._context, zmq.PULL)
        _bind(self._pull, endpoint, self._context)
        self._poller = zmq.Poller()
        self._poller.register(self._dealer, zmq.POLLIN)
        self._poller.register(self._pull, zmq.POLLIN)
        self._endpoints: tuple[str, ...] = ()
        self._pushes: dict[int, zmq.Socket[bytes]] = {}

    def connect_peers(self, endpoints: tuple[str, ...]) -> None:
        """Learn where every SIP listens, by rank."""
        self._endpoints = endpoints

    def reconnect_peer(self, rank: int, incarnation: int, endpoint: str) -> None:
        """A peer was started again and listens elsewhere: drop the way to its predecessor and what is queued there."""
        push = self._pushes.pop(rank, None)
        if push is not None:
            push.close(linger=0)
        self._endpoints = (*self._endpoints[:rank], endpoint, *self._endpoints[rank + 1 :])

    @property
    def endpoint(self) -> str:
        """Where peers reach this SIP."""
        return self._pull.getsockopt_string(zmq.LAST_ENDPOINT)

    def send(self, to: int, frame: bytes) -> None:
        """Send to the broker or to a SIP; never blocks."""
        if to == BROKER:
            self._dealer.send(frame)
            return
        push = self._pushes.get(to)
        if push is None:
            push = self._pushes[to] = plain_socket(self._context, zmq.PUSH)
            push.connect(self._endpoints[to])
        push.send(frame)

    def recv_control(self) -> bytes:
        """Wait for a frame of the broker."""
        return self._dealer.recv()

    def recv_data(self) -> bytes:
        """Wait for a frame of a peer, or one of the broker if that comes first."""
        try:
            return self._pull.recv(zmq.NOBLOCK)
        except zmq.Again:
            ready = dict(self._poller.poll())
        return (self._pull if self._pull in ready else self._dealer).recv()

    def poll_control(self) -> list[bytes]:
        """Frames of the broker that are here already."""
        return list(self.receive_waiting())

    def close(self) -> None:
        """Send what is queued and release everything."""
        for socket in (self._pull, *self._pushes.values()):
            socket.close()
        super().close()


class ZmqBroker(NoConnectionEvents):
    """The broker's ROUTER: receives from everybody, sends to a rank or the launcher."""

    def __init__(self, endpoint: str) -> None:
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._router = plain_socket(self._context, zmq.ROUTER)
        _bind(self._router, endpoint, self._context)

    @property
    def endpoint(self) -> str:
        """Where everybody reaches the broker."""
        return self._router.getsockopt_string(zmq.LAST_ENDPOINT)

    def receive(self) -> tuple[int | None, bytes]:
        """Wait for one (sender, frame); the sender is None for a stranger or a frame in parts."""
        parts = self._router.recv_multipart()
        return (sender_of(parts[0]), parts[1]) if len(parts) == 2 else (None, b"")

    def receive_now(self) -> tuple[int | None, bytes] | None:
        """One (sender, frame) that is here already."""
        try:
            parts = self._router.recv_multipart(zmq.NOBLOCK)
        except zmq.Again:
            return None
        return (sender_of(parts[0]), parts[1]) if len(parts) == 2 else (None, b"")

    def send(self, to: int, frame: bytes) -> bool:
        """Send; whether the destination is connected (a dead one is the launcher's to notice)."""
        name = LAUNCHER_NAME if to == LAUNCHER else sip_name(to)
        try:
            self._router.send_multipart([name, frame])
        except zmq.ZMQError as error:
            if error.errno != zmq.EHOSTUNREACH:
                raise
            return False
        return True

    def close(self) -> None:
        """Send what is queued and release everything."""
        self._router.close()
        self._context.term()
