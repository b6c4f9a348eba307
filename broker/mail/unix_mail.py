"""Mail between processes of one host: datagrams over Unix sockets in a private folder, no threads, one wake a message.

Every participant has a socket that the broker writes to (and the broker one that everybody writes to); a SIP has a
second one for its peers. A datagram is kept by the kernel until it is read; when a receiver's queue is full the
frame stays here, in order, and goes out while this side waits or sends again. A frame longer than a datagram travels
in pieces. An endpoint is ``unix://PATH``; what the broker writes to lies beside the broker's own path. Keys are taken
and not used: that nobody else can enter the folder is checked, and nothing leaves the host.
"""

import contextlib
import errno
import os
import select
import socket
import struct
import time
from collections import deque
from collections.abc import Iterator

from broker.ids import BROKER, LAUNCHER, MAX_ADDRESS, MAX_FRAME_BYTES
from broker.mail.base import JOIN_TIMEOUT_S, SILENCE_S, NoConnectionEvents, OnPeerLost
from broker.security.keys import BrokerKeys, LauncherKeys, SipKeys, check_bind

SCHEME = "unix://"
PIECE_BYTES = 96 * 1024
"""Below what an unprivileged Linux socket may queue by default (net.core.wmem_default, 208 KiB, headers counted)."""
LINGER_S = 5.0
FOR_GOOD_S = 1e6
"""For what the broker has for a launcher that is suspended: a launcher that is gone ends the broker too."""
LISTENER_S = 60.0
RETRY_S = 0.001
_NO_ROOM = (errno.EAGAIN, errno.ENOBUFS, errno.ENOMEM)
_NOBODY = (errno.ENOENT, errno.ECONNREFUSED, errno.ECONNRESET, errno.ENOTCONN, errno.EPIPE)
_HEADER = struct.Struct(">?i")
"""Whether more pieces of the frame follow, and the sender."""
_HEADER_BYTES = _HEADER.size


def _path(endpoint: str) -> str:
    return endpoint.removeprefix(SCHEME)


def _name(address: int) -> str:
    return "launcher" if address == LAUNCHER else f"sip-{address}"


class _Sender:
    """The way to one receiver. Frames that the receiver has no room for wait here, in order."""

    def __init__(self, sender: int, path: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.setblocking(False)
        try:
            self._socket.connect(path)
        except OSError:
            self._socket.close()
            raise
        self._last, self._more = _HEADER.pack(False, sender), _HEADER.pack(True, sender)
        self._queue: deque[bytes] = deque()

    def fileno(self) -> int:
        return self._socket.fileno()

    def send(self, frame: bytes) -> bool:
        """Whether all of it is gone."""
        if not self._queue and len(frame) <= PIECE_BYTES:
            try:
                self._socket.send(self._last + frame)
                return True
            except OSError as error:
                if error.errno not in _NO_ROOM:
                    raise
        starts = range(0, max(len(frame), 1), PIECE_BYTES)
        pieces = [frame[start : start + PIECE_BYTES] for start in starts]
        self._queue.extend(self._more + piece for piece in pieces[:-1])
        self._queue.append(self._last + pieces[-1])
        return self.flush()

    def flush(self) -> bool:
        """Try again; whether nothing is left. A receiver that is gone needs nothing any more."""
        try:
            while self._queue:
                self._socket.send(self._queue[0])
                self._queue.popleft()
        except OSError as error:
            if error.errno in _NO_ROOM:
                return False
            self._queue.clear()
        return True

    def close(self) -> None:
        self._socket.close()


class _Senders:
    """All receivers of one participant."""

    def __init__(self, sender: int) -> None:
        self._sender = sender
        self._outlets: dict[str, _Sender] = {}
        self._blocked: dict[str, _Sender] = {}

    def send(self, path: str, frame: bytes) -> bool:
        """Send or queue; False when nobody is there."""
        outlet = self._outlets.get(path)
        try:
            if outlet is None:
                outlet = self._outlets[path] = _Sender(self._sender, path)
            if not outlet.send(frame):
                self._blocked[path] = outlet
        except OSError as error:
            if error.errno not in _NOBODY:
                raise
            return False
        return True

    def drop(self, path: str) -> None:
        """Nobody is there any more."""
        self._blocked.pop(path, None)
        outlet = self._outlets.pop(path, None)
        if outlet is not None:
            outlet.close()

    def await_listener(self, path: str) -> None:
        """Wait until somebody listens at ``path``.

        Raises:
            ConnectionError: when nobody does for a minute.
        """
        until_s = time.monotonic() + LISTENER_S
        while path not in self._outlets:
            try:
                self._outlets[path] = _Sender(self._sender, path)
            except (FileNotFoundError, ConnectionRefusedError):
                if time.monotonic() >= until_s:
                    raise ConnectionError(f"nobody listens at {path}; start the broker first") from None
                time.sleep(RETRY_S)

    def flush(self) -> None:
        """Try what is queued again."""
        for path in [path for path, outlet in self._blocked.items() if outlet.flush()]:
            del self._blocked[path]

    def receive(self, inlet: "_Receiver") -> tuple[int, bytes]:
        """Wait for one (sender, frame).

        While something is queued here, never sleep on the inlet alone, in the middle of a frame either: its sender
        may be waiting for room at the receiver of ours.
        """
        while self._blocked:
            self.flush()
            found = inlet.receive_now()
            if found is not None:
                return found
            self.wait(inlet)
        return inlet.receive()

    def wait(self, *inlets: "_Receiver") -> None:
        """Sleep until one of ``inlets`` has something; what is queued goes out as room comes."""
        poll = select.poll()
        for inlet in inlets:
            poll.register(inlet, select.POLLIN)
        while True:
            for outlet in self._blocked.values():
                poll.register(outlet, select.POLLOUT)
            ready = {fd for fd, _ in poll.poll()}
            for path, outlet in list(self._blocked.items()):
                if outlet.fileno() in ready and outlet.flush():
                    poll.unregister(outlet)
                    del self._blocked[path]
            if any(inlet.fileno() in ready for inlet in inlets):
                return

    @property
    def blocked(self) -> bool:
        """Whether something is queued here."""
        return bool(self._blocked)

    def close(self, linger_s: float) -> None:
        """Give what is queued some time, and release everything."""
        until_s = time.monotonic() + linger_s
        while self._blocked and (left_s := until_s - time.monotonic()) > 0:
            poll = select.poll()
            for outlet in self._blocked.values():
                poll.register(outlet, select.POLLOUT)
            poll.poll(1000 * min(left_s, LINGER_S))
            self.flush()
        for outlet in self._outlets.values():
            outlet.close()


class _Receiver:
    """One socket that frames come in by, whole again."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
        try:
            self._socket.bind(path)
        except OSError:
            self._socket.close()
            raise
        self._buffer = bytearray(PIECE_BYTES + _HEADER_BYTES + 1)
        self._view = memoryview(self._buffer)
        self._parts: dict[int, bytearray] = {}

    def fileno(self) -> int:
        return self._socket.fileno()

    def receive(self) -> tuple[int, bytes]:
        """Wait for one (sender, frame)."""
        while True:
            found = self._piece(0)
            if found is not None:
                return found

    def receive_now(self) -> tuple[int, bytes] | None:
        """One (sender, frame) if a whole one is here."""
        try:
            while True:
                found = self._piece(socket.MSG_DONTWAIT)
                if found is not None:
                    return found
        except BlockingIOError:
            return None

    def _piece(self, flags: int) -> tuple[int, bytes] | None:
        length = self._socket.recv_into(self._buffer, 0, flags)
        if not _HEADER_BYTES <= length <= PIECE_BYTES + _HEADER_BYTES:
            return None  # nobody of this run sends such a datagram
        more, sender = _HEADER.unpack_from(self._buffer)
        if not LAUNCHER <= sender <= MAX_ADDRESS:
            return None  # nor one of a sender who cannot be; so the frames that are not whole yet are bounded
        piece = bytes(self._view[_HEADER_BYTES:length])
        if not more and sender not in self._parts:
            return sender, piece
        parts = self._parts.setdefault(sender, bytearray())
        parts += piece
        if len(parts) > MAX_FRAME_BYTES:
            del self._parts[sender]
            return None
        return None if more else (sender, bytes(self._parts.pop(sender)))

    def close(self) -> None:
        self._socket.close()
        with contextlib.suppress(OSError):
            os.unlink(self.path)


class UnixSipMail(NoConnectionEvents):
    """One SIP's end: an inlet for the broker's commands, one for its peers' parcels."""

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
        check_bind(endpoint, None)
        self._broker = _path(broker_endpoint)
        self._outlets = _Senders(address)
        self._peers: tuple[str, ...] = ()
        with contextlib.ExitStack() as undo:
            self._control = undo.enter_context(contextlib.closing(_Receiver(f"{self._broker}.{_name(address)}")))
            self._parcels = undo.enter_context(contextlib.closing(_Receiver(_path(endpoint))))
            self._outlets.await_listener(self._broker)
            undo.pop_all()

    def connect_peers(self, endpoints: tuple[str, ...]) -> None:
        """Learn where every SIP listens, by rank."""
        self._peers = tuple(map(_path, endpoints))

    def reconnect_peer(self, rank: int, incarnation: int, endpoint: str) -> None:
        """A peer was started again and listens elsewhere: drop the way to its predecessor and what is queued there."""
        self._outlets.drop(self._peers[rank])
        self._peers = (*self._peers[:rank], _path(endpoint), *self._peers[rank + 1 :])

    @property
    def endpoint(self) -> str:
        """Where peers reach this SIP."""
        return f"{SCHEME}{self._parcels.path}"

    def send(self, to: int, frame: bytes) -> None:
        """Send to the broker or to a SIP; never blocks."""
        self._outlets.send(self._broker if to == BROKER else self._peers[to], frame)

    def recv_control(self) -> bytes:
        """Wait for a frame of the broker."""
        return self._outlets.receive(self._control)[1]

    def recv_data(self) -> bytes:
        """Wait for a frame of a peer, or one of the broker if that comes first."""
        while True:
            found = self._parcels.receive_now() or self._control.receive_now()
            if found is not None:
                return found[1]
            self._outlets.wait(self._parcels, self._control)

    def poll_control(self) -> list[bytes]:
        """Frames of the broker that are here already; what could not be sent before is tried again."""
        self._outlets.flush()
        frames = []
        while (found := self._control.receive_now()) is not None:
            frames.append(found[1])
        return frames

    def close(self) -> None:
        """Send what is queued and release everything. Peers that close too need nothing of us any more."""
        self._control.close()
        self._parcels.close()
        self._outlets.close(LINGER_S)


class UnixBroker(NoConnectionEvents):
    """The broker's end: one inlet for everybody."""

    def __init__(self, endpoint: str, keys: BrokerKeys | None = None, silence_s: float | None = SILENCE_S) -> None:
        check_bind(endpoint, None)
        self._path = _path(endpoint)
        self._inlet = _Receiver(self._path)
        self._paths: dict[int, str] = {}
        self._outlets = _Senders(BROKER)

    @property
    def endpoint(self) -> str:
        """Where everybody reaches the broker."""
        return f"{SCHEME}{self._path}"

    def receive(self) -> tuple[int | None, bytes]:
        """Wait for one (sender, frame); strangers are passed over."""
        return self._outlets.receive(self._inlet)

    def receive_now(self) -> tuple[int | None, bytes] | None:
        """One (sender, frame) that is here already."""
        return self._inlet.receive_now()

    def send(self, to: int, frame: bytes) -> bool:
        """Send without blocking; whether the destination is there."""
        path = self._paths.get(to)
        if path is None:
            path = self._paths[to] = f"{self._path}.{_name(to)}"
        return self._outlets.send(path, frame)

    def close(self) -> None:
        """Send what is queued and release everything."""
        self._outlets.close(FOR_GOOD_S)
        self._inlet.close()


class UnixLauncher(NoConnectionEvents):
    """The launcher's end. The broker may not listen yet: what is sent before it does goes out later."""

    def __init__(
        self, broker_endpoint: str, keys: LauncherKeys | None = None, silence_s: float | None = SILENCE_S
    ) -> None:
        check_bind(broker_endpoint, None)
        self._broker = _path(broker_endpoint)
        self._inlet = _Receiver(f"{self._broker}.{_name(LAUNCHER)}")
        self._outlets = _Senders(LAUNCHER)
        self._early: deque[bytes] = deque()

    @property
    def pollable(self) -> int:
        """Readable when a frame is here."""
        return self._inlet.fileno()

    @property
    def unsent(self) -> bool:
        """Whether something waits for the broker to listen, or to make room."""
        return bool(self._early) or self._outlets.blocked

    def send(self, to: int, frame: bytes) -> None:
        """Send to the broker without blocking."""
        assert to == BROKER
        self._early.append(frame)
        self._flush()

    def receive_waiting(self) -> Iterator[bytes]:
        """Frames that are here already."""
        self._flush()
        while (found := self._inlet.receive_now()) is not None:
            yield found[1]

    def close_now(self) -> None:
        """Release everything."""
        self._outlets.close(0.0)
        self._inlet.close()

    def _flush(self) -> None:
        self._outlets.flush()
        while self._early and self._outlets.send(self._broker, self._early[0]):
            self._early.popleft()
