"""Mail over ZeroMQ: a DEALER to the broker's ROUTER, and one PUSH to PULL stream for each ordered pair of SIPs.

Connections are monitored if the mail has keys or uses TCP; otherwise the endpoints are in a private folder, and waits
are plain blocking receives. With keys, the sender of a frame is the owner of its connection's key. The routing id adds
the incarnation and a suffix unique to the process, so that a second process with the same ticket, or a process with
another rank's ticket, is rejected with a reason. Without keys, routing ids are trusted. A SIP that has lost the broker
must exit even if it could reconnect: frames in flight are lost. A lost peer stays lost until it is restarted.
"""

import os
import time
from collections.abc import Iterator
from socket import gethostname

import zmq

from broker.ids import BROKER, LAUNCHER, MAX_ADDRESS, split_address
from broker.mail.base import DEFAULTS, BrokerMail, Disconnected, LauncherMail, MailOptions, Notice, SipMail
from broker.mail.sockets import REJECTED, ClientSocket, SocketFactory
from broker.security import BrokerKeys, LauncherKeys, MemberKeys, SipKeys, is_tcp, member_of
from broker.wire import source_of

LAUNCHER_NAME = b"launcher"
MAX_DIGITS = len(str(MAX_ADDRESS))


def routing_id(address: int) -> bytes:
    """The routing id of the launcher, or of one incarnation of a rank."""
    return LAUNCHER_NAME if address == LAUNCHER else b"sip-%d" % address


def sender_of(name: bytes) -> int | None:
    """Return the mail address of a SIP, or ``LAUNCHER``, from a routing id; None if the routing id is neither."""
    if name == LAUNCHER_NAME:
        return LAUNCHER
    digits = name.removeprefix(b"sip-")
    is_sip = name.startswith(b"sip-") and len(digits) <= MAX_DIGITS and digits.isdigit()
    return int(digits) if is_sip and int(digits) <= MAX_ADDRESS else None


def _is_monitored(keys: MemberKeys | None, *endpoints: str) -> bool:
    return keys is not None or any(map(is_tcp, endpoints))


def _local_id(address: int, monitored: bool) -> bytes:
    """The routing id of this process; if ``monitored``, the id ends with a suffix unique to the process."""
    name = routing_id(address)
    if not monitored:
        return name
    return b"%b/%b-%d-%d" % (name, gethostname().encode()[:64], os.getpid(), time.monotonic_ns())


class ZmqLauncher(LauncherMail):
    """The launcher's end of mail over ZeroMQ: a DEALER."""

    def __init__(self, broker: str, keys: LauncherKeys | None = None, options: MailOptions = DEFAULTS) -> None:
        self._monitored = _is_monitored(keys, broker)
        # No join timeout: the launcher starts the broker.
        self._sockets = SocketFactory(keys, {}, options.silence_s, float("inf"), self._monitored)
        name = _local_id(LAUNCHER, self._monitored)
        self._broker = self._sockets.connect(zmq.DEALER, BROKER, broker, keys.broker if keys else None, name)
        self._reported = False

    @property
    def pollable(self) -> "zmq.Socket[bytes]":
        return self._broker.socket

    def send(self, to: int, frame: bytes) -> None:
        assert to == BROKER
        self._broker.send(frame)

    def receive_waiting(self) -> Iterator[bytes]:
        while (frame := self._broker.receive_now()) is not None:
            yield frame

    def notices(self) -> list[Notice]:
        gone = self._broker.poll_events() if self._monitored else None
        if gone is not None and not self._reported:
            self._reported = True
            self._sockets.note([gone])
        return self._sockets.notices()

    def close(self) -> None:
        self._sockets.close(0)


class ZmqSipMail(SipMail):
    """One SIP's end of mail over ZeroMQ: listens on ``endpoint``; connects to a peer before the first send to it."""

    def __init__(
        self, address: int, broker: str, endpoint: str, keys: SipKeys | None = None, options: MailOptions = DEFAULTS
    ) -> None:
        self._keys = keys
        members = {key: str(rank) for rank, key in enumerate(keys.sips)} if keys else {}
        self._monitored = _is_monitored(keys, broker, endpoint)
        self._sockets = SocketFactory(keys, members, options.silence_s, options.join_timeout_s, self._monitored)
        self._on_peer_lost = options.on_peer_lost
        self._peers: dict[int, ClientSocket] = {}
        self._lost_peers: set[int] = set()
        self._server = self._sockets.listen(zmq.PULL, endpoint)
        name = _local_id(address, self._monitored)
        self._broker = self._sockets.connect(zmq.DEALER, BROKER, broker, keys.broker if keys else None, name)
        self._poller = zmq.Poller()
        self._poller.register(self._broker.socket, zmq.POLLIN)
        self._poller.register(self._server.socket, zmq.POLLIN)

    @property
    def endpoint(self) -> str:
        return self._server.endpoint

    def reconnect_peer(self, rank: int, incarnation: int, endpoint: str) -> None:
        super().reconnect_peer(rank, incarnation, endpoint)
        self._lost_peers.discard(rank)

    def send(self, to: int, frame: bytes) -> None:
        if to == BROKER:
            self._broker.send(frame)
            return
        peer = self._peers.get(to)
        if peer is None:
            if to in self._lost_peers:
                return
            key = self._keys.sips[to] if self._keys else None
            peer = self._peers[to] = self._sockets.connect(zmq.PUSH, to, self._endpoints[to], key)
        peer.send(frame)

    def recv_control(self) -> bytes:
        if not self._monitored:
            return self._broker.socket.recv()
        while (frame := self._broker.receive_now()) is None:
            self._wait(for_data=False)
        return frame

    def recv_data(self) -> bytes:
        if not self._monitored:
            try:
                return self._server.socket.recv(zmq.NOBLOCK)
            except zmq.Again:
                ready = dict(self._poller.poll())
            return (self._server if self._server.socket in ready else self._broker).socket.recv()
        while True:
            frame = self._data_now()
            if frame is None:
                frame = self._broker.receive_now()
            if frame is not None:
                return frame
            self._wait(for_data=True)

    def poll_control(self) -> list[bytes]:
        if self._monitored:
            self._look()
        frames = []
        while (frame := self._broker.receive_now()) is not None:
            frames.append(frame)
        return frames

    def notices(self) -> list[Notice]:
        if self._monitored:
            self._look()
        return self._sockets.notices()

    def close(self) -> None:
        # Frames to a lost broker have no receiver to wait for.
        self._sockets.close(0 if self.broker_lost else None)

    def _wait(self, for_data: bool) -> None:
        """Wait until a frame or an event of a connection has arrived."""
        if self.broker_lost is not None:
            raise Disconnected(self.broker_lost)
        if self._look():
            return  # the broker's last frames may have arrived before the event: receive once more
        poller = zmq.Poller()
        poller.register(self._broker.socket, zmq.POLLIN)
        if for_data:
            poller.register(self._server.socket, zmq.POLLIN)
        clients = [self._broker, *self._peers.values()]
        for each in (self._server, *clients):
            poller.register(each.monitor, zmq.POLLIN)
        due_s = [client.connection.until_s for client in clients if client.connection.until_s is not None]
        poller.poll(int(max(min(due_s) - time.monotonic(), 0.0) * 1000) + 1 if due_s else None)

    def _look(self) -> bool:
        """Take the events of all connections; return whether the broker is lost."""
        self._sockets.note(self._server.poll_events())
        if self.broker_lost is None and (gone := self._broker.poll_events()) is not None:
            self.broker_lost = gone
            self._sockets.note([gone])
        for rank, peer in list(self._peers.items()):
            if (gone := peer.poll_events()) is not None:
                self._drop_peer(rank)
                self._lost_peers.add(rank)
                self._sockets.note([gone])
                self._on_peer_lost(rank, gone)
        return self.broker_lost is not None

    def _drop_peer(self, rank: int) -> None:
        peer = self._peers.pop(rank, None)
        if peer is not None:
            self._sockets.drop(peer)

    def _data_now(self) -> bytes | None:
        while True:
            try:
                parts = self._server.socket.recv_multipart(zmq.NOBLOCK, copy=False)
            except zmq.Again:
                return None
            frame = parts[0].bytes
            objection = self._objection(parts, frame)
            if objection is None:
                return frame
            self._sockets.note([Notice("rejected", None, self.endpoint, f"{objection}; this SIP dropped the frame")])

    def _objection(self, parts: list[zmq.Frame], frame: bytes) -> str | None:
        """The reason to reject a frame from a peer, or None. Peers may send packet batches only, no commands."""
        if len(parts) != 1:
            return f"a frame arrived in {len(parts)} parts instead of one"
        if self._keys is None:
            return None
        member, source = member_of(parts[0]), source_of(frame)
        if source is None:
            return f"a frame that is no packet batch arrived with the key of SIP {member}"
        return None if member == str(source) else f"a packet batch of SIP {source} arrived with the key of SIP {member}"


class ZmqBroker(BrokerMail):
    """The broker's end of mail over ZeroMQ: a ROUTER."""

    def __init__(self, endpoint: str, keys: BrokerKeys | None = None, options: MailOptions = DEFAULTS) -> None:
        self._has_keys = keys is not None
        members = {key: str(rank) for rank, key in enumerate(keys.sips)} if keys else {}
        if keys:
            members[keys.launcher] = str(LAUNCHER)
        self._monitored = _is_monitored(keys, endpoint)
        self._sockets = SocketFactory(keys, members, options.silence_s, monitored=self._monitored)
        self._server = self._sockets.listen(zmq.ROUTER, endpoint)
        self._router = self._server.socket
        # The first routing id of each sender; and, without keys to check, the sender of each routing id.
        self._names: dict[int, bytes] = {}
        self._senders: dict[bytes, int] = {}
        self._poller = zmq.Poller()
        self._poller.register(self._router, zmq.POLLIN)
        if self._monitored:
            self._poller.register(self._server.monitor, zmq.POLLIN)

    @property
    def endpoint(self) -> str:
        return self._server.endpoint

    def receive(self, or_notice: bool = False, timeout_ms: int | None = None) -> tuple[int | None, bytes]:
        if not self._monitored:
            return self._accept(self._router.recv_multipart())
        while (received := self.receive_now()) is None:
            notices = self._server.poll_events()
            self._sockets.note(notices)
            if (or_notice and notices) or not self._poller.poll(timeout_ms):
                return None, b""
        return received

    def receive_now(self) -> tuple[int | None, bytes] | None:
        try:
            if not self._has_keys:
                return self._accept(self._router.recv_multipart(zmq.NOBLOCK))
            frames = self._router.recv_multipart(zmq.NOBLOCK, copy=False)
        except zmq.Again:
            return None
        return self._accept([frame.bytes for frame in frames], member_of(frames[-1]))

    def send(self, to: int, frame: bytes) -> bool:
        name = self._names.get(to)
        return name is not None and self._send(name, frame)

    def notices(self) -> list[Notice]:
        if self._monitored:
            self._sockets.note(self._server.poll_events())
        return self._sockets.notices()

    def close(self) -> None:
        self._sockets.close()

    def _accept(self, parts: list[bytes], member: str | None = None) -> tuple[int | None, bytes]:
        """Return (sender, frame) of a message; (None, b"") if rejected. ``member``: the owner of the key."""
        if len(parts) != 2:
            return self._reject(f"a message arrived in {len(parts) - 1} parts instead of one")
        name, frame = parts
        sender = self._senders.get(name)
        if sender is not None:
            return sender, frame
        sender = sender_of(name.partition(b"/")[0])
        if sender is None:
            return self._reject("a message arrived with a routing id that no process of this run has")
        reason = self._refusal(sender, name, member)
        if reason is not None:
            claimed = "the launcher" if sender == LAUNCHER else f"SIP {split_address(sender)[0]}"
            self._send(name, REJECTED, f"rejects this process, which {reason}".encode())
            return self._reject(f"a process with the routing id of {claimed} {reason}")
        if not self._has_keys:
            self._senders[name] = sender
        return sender, frame

    def _refusal(self, sender: int, name: bytes, member: str | None) -> str | None:
        """The reason to refuse a sender, or None. Only the first process that used an address may use this address."""
        owner = LAUNCHER if sender == LAUNCHER else split_address(sender)[0]
        if self._has_keys and member != str(owner):
            return f"has the key of {'the launcher' if member == str(LAUNCHER) else f'SIP {member}'}"
        if self._names.setdefault(sender, name) != name:
            return "uses a ticket that another process already uses; give each process its own ticket"
        return None

    def _reject(self, cause: str) -> tuple[None, bytes]:
        self._sockets.note([Notice("rejected", None, self.endpoint, f"{cause}; the broker dropped the message")])
        return None, b""

    def _send(self, *parts: bytes) -> bool:
        try:
            self._router.send_multipart(parts)
        except zmq.ZMQError as error:
            if error.errno != zmq.EHOSTUNREACH:
                raise
            return False
        return True
