"""ZeroMQ mail that may leave the private folder: with keys, or over TCP. Connections are watched.

Who sent a frame is who its key belongs to; a routing id adds the incarnation, and after a slash what no other process
has, so that a second process in the same seat, or one in a seat that is not its own, can be told so. Without keys, on
this host's loopback alone, routing ids are believed. A SIP whose connection to the broker is lost cannot go on, even if
it could connect again: what was on its way is lost. What came before is taken first. A connection to a peer that is
lost stays so until that peer has been started again. The ends of the broker and the launcher only collect what happens.
"""

import os
import socket as hosts
import time
from collections.abc import Iterator

import zmq

from broker.ids import BROKER, LAUNCHER, split_address
from broker.mail.base import (
    JOIN_TIMEOUT_S,
    SILENCE_S,
    BrokerMail,
    Disconnected,
    LauncherMail,
    Notice,
    OnPeerLost,
    SipMail,
)
from broker.mail.sockets import ClientSocket, SocketFactory, member_of
from broker.mail.zmq_mail import LAUNCHER_NAME, ZmqBroker, ZmqEnd, ZmqSipMail, sender_of, sip_name
from broker.security.keys import BrokerKeys, LauncherKeys, SipKeys, check_bind, is_tcp
from broker.wire import source_of

NOT_YOU = b""
"""Begins, as a part of its own, what the broker answers to a process that may not sit where it wants to; then why."""
MOST_REASON = 500


def open_sip(
    address: int,
    broker_endpoint: str,
    endpoint: str,
    keys: SipKeys | None = None,
    silence_s: float | None = SILENCE_S,
    join_timeout_s: float = JOIN_TIMEOUT_S,
    on_peer_lost: OnPeerLost | None = None,
) -> SipMail:
    """A SIP's end, watched where it needs to be."""
    if keys is None and not is_tcp(broker_endpoint) and not is_tcp(endpoint):
        check_bind(endpoint, None)
        return ZmqSipMail(address, broker_endpoint, endpoint)
    return SecureSipMail(address, broker_endpoint, endpoint, keys, silence_s, join_timeout_s, on_peer_lost)


def open_broker(endpoint: str, keys: BrokerKeys | None = None, silence_s: float | None = SILENCE_S) -> BrokerMail:
    """The broker's end, watched where it needs to be."""
    if keys is None and not is_tcp(endpoint):
        check_bind(endpoint, None)
        return ZmqBroker(endpoint)
    return SecureBroker(endpoint, keys, silence_s)


def open_launcher(
    broker_endpoint: str, keys: LauncherKeys | None = None, silence_s: float | None = SILENCE_S
) -> LauncherMail:
    """The launcher's end, watched where it needs to be."""
    if keys is None and not is_tcp(broker_endpoint):
        return ZmqEnd(LAUNCHER_NAME, broker_endpoint)
    return SecureLauncher(broker_endpoint, keys, silence_s)


def _own_name(name: bytes) -> bytes:
    """A routing id that no other process has."""
    return b"%b/%b-%d-%d" % (name, hosts.gethostname().encode()[:64], os.getpid(), time.monotonic_ns())


class SecureLauncher:
    """The launcher's end."""

    def __init__(
        self, broker_endpoint: str, keys: LauncherKeys | None = None, silence_s: float | None = SILENCE_S
    ) -> None:
        # The broker may start as late as it likes: the launcher starts it.
        self._sockets = SocketFactory(keys, {}, silence_s, join_timeout_s=float("inf"))
        key = keys.broker if keys else None
        self._way = self._sockets.connect(zmq.DEALER, BROKER, broker_endpoint, key, _own_name(LAUNCHER_NAME))
        self._told = False

    @property
    def pollable(self) -> "zmq.Socket[bytes]":
        """For a ``zmq.Poller``."""
        return self._way.socket

    @property
    def unsent(self) -> bool:
        """ZeroMQ keeps and sends what cannot be sent yet."""
        return False

    def send(self, to: int, frame: bytes) -> None:
        """Send to the broker, the only destination of this end."""
        assert to == BROKER
        self._way.send(frame)

    def receive_waiting(self) -> Iterator[bytes]:
        """Frames that are here already."""
        while (parts := _parts_here(self._way)) is not None:
            if len(parts) == 1:
                yield parts[0]
            elif parts[0] == NOT_YOU:
                self._way.connection.refuse(_one_line(parts[1]))

    def notices(self) -> list[Notice]:
        """What became of the connection, once."""
        gone = self._way.look()
        if gone is not None and not self._told:
            self._told = True
            self._sockets.tell(gone)
        return self._sockets.notices()

    def close_now(self) -> None:
        """Release everything; what is queued for a broker that may be gone is dropped."""
        self._sockets.close(0)


class SecureSipMail:
    """One SIP's end. It listens on ``endpoint`` from the start and connects to a peer on the first packet."""

    def __init__(
        self,
        address: int,
        broker_endpoint: str,
        endpoint: str,
        keys: SipKeys | None = None,
        silence_s: float | None = SILENCE_S,
        join_timeout_s: float = JOIN_TIMEOUT_S,
        on_peer_lost: OnPeerLost | None = None,
    ) -> None:
        self._keys = keys
        members = {key: str(rank) for rank, key in enumerate(keys.sips)} if keys else {}
        self._sockets = SocketFactory(keys, members, silence_s, join_timeout_s)
        self._on_peer_lost = on_peer_lost
        self._endpoints: tuple[str, ...] = ()
        self._peers: dict[int, ClientSocket] = {}
        self._cut_off_from: set[int] = set()
        self._listening = self._sockets.listen(zmq.PULL, endpoint)
        key = keys.broker if keys else None
        name = _own_name(sip_name(address))
        self._broker = self._sockets.connect(zmq.DEALER, BROKER, broker_endpoint, key, name)
        self.cut_off: Notice | None = None

    @property
    def endpoint(self) -> str:
        """Where peers reach this SIP."""
        return self._listening.endpoint

    def connect_peers(self, endpoints: tuple[str, ...]) -> None:
        """Learn where every SIP listens, by rank."""
        self._endpoints = endpoints

    def reconnect_peer(self, rank: int, incarnation: int, endpoint: str) -> None:
        """A peer was started again and listens elsewhere: drop the way to its predecessor and what is queued there."""
        self._drop_peer(rank)
        self._cut_off_from.discard(rank)
        self._endpoints = (*self._endpoints[:rank], endpoint, *self._endpoints[rank + 1 :])

    def send(self, to: int, frame: bytes) -> None:
        """Send to the broker or to a SIP; never blocks. What is for a lost peer is for nobody."""
        if to == BROKER:
            self._broker.send(frame)
            return
        peer = self._peers.get(to)
        if peer is None:
            if to in self._cut_off_from:
                return
            key = self._keys.sips[to] if self._keys else None
            peer = self._peers[to] = self._sockets.connect(zmq.PUSH, to, self._endpoints[to], key)
        peer.send(frame)

    def recv_control(self) -> bytes:
        """Wait for a frame of the broker.

        Raises:
            Disconnected: when no more can come.
        """
        while True:
            if (frame := self._control_here()) is not None:
                return frame
            self._wait(parcels=False)

    def recv_data(self) -> bytes:
        """Wait for a frame of a peer, or one of the broker if that comes first.

        Raises:
            Disconnected: when the broker is lost.
        """
        while True:
            frame = self._parcel_here()
            if frame is None:
                frame = self._control_here()
            if frame is not None:
                return frame
            self._wait(parcels=True)

    def poll_control(self) -> list[bytes]:
        """Frames of the broker that are here already. Whether it is lost: ``cut_off``."""
        self._look()
        frames = []
        while (frame := self._control_here()) is not None:
            frames.append(frame)
        return frames

    def notices(self) -> list[Notice]:
        """What happened to connections since this was last asked."""
        self._look()
        return self._sockets.notices()

    def close(self) -> None:
        """Send what is queued and release everything; when the broker is lost, nobody waits for it."""
        self._sockets.close(0 if self.cut_off else None)

    # --- waiting ----------------------------------------------------------------------------------------------

    def _wait(self, parcels: bool) -> None:
        """Until something has come, or something has happened."""
        if self.cut_off is not None:
            raise Disconnected(self.cut_off)
        if self._look():
            return  # once more: the broker's last words may have come before its end was seen
        poller = zmq.Poller()
        poller.register(self._broker.socket, zmq.POLLIN)
        if parcels:
            poller.register(self._listening.socket, zmq.POLLIN)
        ways = [self._broker, *self._peers.values()]
        for each in (self._listening, *ways):
            poller.register(each.monitor, zmq.POLLIN)
        due_s = [way.connection.until_s for way in ways if way.connection.until_s is not None]
        poller.poll(int(max(min(due_s) - time.monotonic(), 0.0) * 1000) + 1 if due_s else None)

    def _look(self) -> bool:
        """Take what has happened to connections; whether the broker is lost."""
        for notice in self._listening.look():
            self._sockets.tell(notice)
        if self.cut_off is None and (gone := self._broker.look()) is not None:
            self.cut_off = gone
            self._sockets.tell(gone)
        for rank, way in list(self._peers.items()):
            if (gone := way.look()) is not None:
                self._drop_peer(rank)
                self._cut_off_from.add(rank)
                self._sockets.tell(gone)
                if self._on_peer_lost is not None:
                    self._on_peer_lost(rank, gone)
        return self.cut_off is not None

    def _drop_peer(self, rank: int) -> None:
        way = self._peers.pop(rank, None)
        if way is not None:
            self._sockets.drop(way)

    # --- taking -----------------------------------------------------------------------------------------------

    def _control_here(self) -> bytes | None:
        parts = _parts_here(self._broker)
        while parts is not None and len(parts) != 1:
            if len(parts) == 2 and parts[0] == NOT_YOU:
                self._broker.connection.refuse(_one_line(parts[1]))
            parts = _parts_here(self._broker)
        return parts[0] if parts else None

    def _parcel_here(self) -> bytes | None:
        while True:
            try:
                parts = self._listening.socket.recv_multipart(zmq.NOBLOCK, copy=False)
            except zmq.Again:
                return None
            frame = parts[0].bytes
            objection = self._objection(parts, frame)
            if objection is None:
                return frame
            self._sockets.tell(Notice("stranger", None, self.endpoint, f"{objection}; it was dropped"))

    def _objection(self, parts: list[zmq.Frame], frame: bytes) -> str | None:
        """Why a frame cannot be a peer's parcel; peers send nothing else, least of all what the broker commands."""
        if len(parts) != 1:
            return f"a frame in {len(parts)} parts came"
        if self._keys is None:
            return None
        member, source = member_of(parts[0]), source_of(frame)
        if source is None:
            return f"what is no parcel came with the key of SIP {member}"
        return None if member == str(source) else f"a parcel of SIP {source} came with the key of SIP {member}"


def _parts_here(way: ClientSocket) -> list[bytes] | None:
    try:
        return way.socket.recv_multipart(zmq.NOBLOCK)
    except zmq.Again:
        return None


def _one_line(reason: bytes) -> str:
    return "".join(c if c.isprintable() else " " for c in reason[:MOST_REASON].decode(errors="replace"))


class SecureBroker:
    """The broker's ROUTER: receives from everybody, sends to a rank or the launcher."""

    def __init__(self, endpoint: str, keys: BrokerKeys | None = None, silence_s: float | None = SILENCE_S) -> None:
        self._has_keys = keys is not None
        members = {key: str(rank) for rank, key in enumerate(keys.sips)} if keys else {}
        if keys:
            members[keys.launcher] = str(LAUNCHER)
        self._sockets = SocketFactory(keys, members, silence_s)
        self._listening = self._sockets.listen(zmq.ROUTER, endpoint)
        self._router = self._listening.socket
        self._names: dict[int, bytes] = {}
        self._poller = zmq.Poller()
        self._poller.register(self._router, zmq.POLLIN)
        self._poller.register(self._listening.monitor, zmq.POLLIN)

    @property
    def endpoint(self) -> str:
        """Where everybody reaches the broker."""
        return self._listening.endpoint

    def receive(self) -> tuple[int | None, bytes]:
        """Wait for one (sender, frame); the sender is None for a stranger or a frame in parts."""
        while (found := self.receive_now()) is None:
            for notice in self._listening.look():
                self._sockets.tell(notice)
            self._poller.poll()
        return found

    def receive_now(self) -> tuple[int | None, bytes] | None:
        """One (sender, frame) that is here already."""
        try:
            parts = self._router.recv_multipart(zmq.NOBLOCK, copy=False)
        except zmq.Again:
            return None
        if len(parts) != 2:
            self._tell(f"a message in {len(parts) - 1} parts came")
            return None, b""
        name = parts[0].bytes
        sender = sender_of(name.partition(b"/")[0])
        if sender is None:
            self._tell("something came from somebody without a seat")
            return None, b""
        reason = self._refusal(sender, name, parts[1])
        if reason is not None:
            who = "the launcher" if sender == LAUNCHER else f"SIP {split_address(sender)[0]}"
            self._tell(f"a process that says it is {who} {reason}")
            self._send(name, NOT_YOU, f"does not take this process: it {reason}".encode())
            return None, b""
        return sender, parts[1].bytes

    def send(self, to: int, frame: bytes) -> bool:
        """Send; whether the destination is connected (a dead one is the launcher's to notice)."""
        name = self._names.get(to)
        return name is not None and self._send(name, frame)

    def notices(self) -> list[Notice]:
        """What happened to connections since this was last asked."""
        for notice in self._listening.look():
            self._sockets.tell(notice)
        return self._sockets.notices()

    def close(self) -> None:
        """Send what is queued and release everything."""
        self._sockets.close()

    def _refusal(self, sender: int, name: bytes, frame: zmq.Frame) -> str | None:
        """Why a sender is not who it says it is. Who came first in a seat keeps it."""
        if self._has_keys:
            member, owner = member_of(frame), LAUNCHER if sender == LAUNCHER else split_address(sender)[0]
            if member != str(owner):
                return f"has the key of {'the launcher' if member == str(LAUNCHER) else f'SIP {member}'}"
        if self._names.setdefault(sender, name) != name:
            return "uses a ticket that another process uses already; each is for one process"
        return None

    def _tell(self, what: str) -> None:
        self._sockets.tell(Notice("stranger", None, self.endpoint, f"{what}; it was dropped"))

    def _send(self, *parts: bytes) -> bool:
        try:
            self._router.send_multipart(parts)
        except zmq.ZMQError as error:
            if error.errno != zmq.EHOSTUNREACH:
                raise
            return False
        return True
