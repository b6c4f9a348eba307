"""Mail between processes of one host: datagrams over Unix sockets in a private folder. A message costs one wake-up.

The broker has one socket that all processes send to. Each process has one socket, next to the broker's path, that the
broker sends to; a SIP has a second socket for its peers. The kernel holds a datagram until it is read. While a
receiver's queue is full, the sender queues frames in order, and sends the frames when it next waits or sends. A frame
longer than a datagram is sent in pieces. An endpoint is ``unix://PATH``. Keys are not used: no other user can enter the
folder, which is checked, and no frame leaves the host.
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
from typing import Any

from broker.ids import BROKER, LAUNCHER, MAX_ADDRESS, MAX_FRAME_BYTES
from broker.mail.base import DEFAULTS, BrokerMail, LauncherMail, MailOptions, SipMail
from broker.security import BrokerKeys, LauncherKeys, SipKeys, check_bind

SCHEME = "unix://"
PIECE_BYTES = 96 * 1024
"""Size of a piece: below the default send buffer of a Linux socket (net.core.wmem_default, 208 KiB with headers)."""
LINGER_S = 5.0
BROKER_LINGER_S = 1e6
"""Time to send the last frames: practically unlimited, as the launcher may be suspended. Its exit ends the broker."""
LISTENER_S = 60.0
RETRY_S = 0.001
_NO_ROOM = (errno.EAGAIN, errno.ENOBUFS, errno.ENOMEM)
_NO_RECEIVER = (errno.ENOENT, errno.ECONNREFUSED, errno.ECONNRESET, errno.ENOTCONN, errno.EPIPE)
_HEADER = struct.Struct(">?i")
"""Header of a piece: whether more pieces of the frame follow, and the sender's address."""
_HEADER_BYTES = _HEADER.size


def _path(endpoint: str) -> str:
    return endpoint.removeprefix(SCHEME)


def _control_path(broker_path: str, address: int) -> str:
    """The path of the socket at which ``address`` receives the broker's frames."""
    return f"{broker_path}.{'launcher' if address == LAUNCHER else f'sip-{address}'}"


class _Sender:
    """A socket to one receiver, and the queue of frames for which the receiver has no room."""

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
        """Send or queue a frame; return whether the queue is empty afterwards."""
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
        """Send queued frames; return whether the queue is empty. A queue whose receiver has exited is discarded."""
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


class _Receiver:
    """A socket that listens, and the pieces of incomplete frames."""

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
            received = self._piece(0)
            if received is not None:
                return received

    def receive_now(self) -> tuple[int, bytes] | None:
        """Return one (sender, frame) if a complete frame has arrived, else None."""
        try:
            while True:
                received = self._piece(socket.MSG_DONTWAIT)
                if received is not None:
                    return received
        except BlockingIOError:
            return None

    def _piece(self, flags: int) -> tuple[int, bytes] | None:
        length = self._socket.recv_into(self._buffer, 0, flags)
        if not _HEADER_BYTES <= length <= PIECE_BYTES + _HEADER_BYTES:
            return None  # no process of this run sends such a datagram
        more, sender = _HEADER.unpack_from(self._buffer)
        if not LAUNCHER <= sender <= MAX_ADDRESS:
            return None  # no process has such an address; this check bounds the number of incomplete frames
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


class _End:
    """Base of the three ends of mail: the senders of one process, by address, and a receiver of control frames."""

    def __init__(self, address: int, broker_path: str, receives_at: str) -> None:
        self._address = address
        self._broker_path = broker_path
        self._senders: dict[int, _Sender] = {}
        self._blocked: dict[int, _Sender] = {}
        self._receiver = _Receiver(receives_at)

    def _path_of(self, to: int) -> str:
        """The path of the socket at which address ``to`` receives frames of this process."""
        return self._broker_path if to == BROKER else _control_path(self._broker_path, to)

    def send(self, to: int, frame: bytes) -> Any:
        """Send or queue a frame; return False if the destination has no receiver."""
        sender = self._senders.get(to)
        try:
            if sender is None:
                sender = self._senders[to] = _Sender(self._address, self._path_of(to))
            if not sender.send(frame):
                self._blocked[to] = sender
        except OSError as error:
            if error.errno not in _NO_RECEIVER:
                raise
            return False
        return True

    def _drop_peer(self, to: int) -> None:
        self._blocked.pop(to, None)
        sender = self._senders.pop(to, None)
        if sender is not None:
            sender.close()

    def _flush(self) -> None:
        """Send queued frames as far as the receivers have room."""
        for to in [to for to, sender in self._blocked.items() if sender.flush()]:
            del self._blocked[to]

    def receive(self, or_notice: bool = False, timeout_ms: int | None = None) -> tuple[int, bytes]:
        """Wait for one (sender, frame).

        Meanwhile queued frames are sent as receivers have room, even between the pieces of a received frame: the sender
        of the pieces may be waiting for a queued frame of this end.
        """
        while self._blocked:
            self._flush()
            received = self._receiver.receive_now()
            if received is not None:
                return received
            self._wait(self._receiver)
        return self._receiver.receive()

    def receive_now(self) -> tuple[int, bytes] | None:
        """Return one (sender, frame) that has arrived, or None if no frame has; never waits."""
        return self._receiver.receive_now()

    def _wait(self, *receivers: _Receiver) -> None:
        """Wait until one of ``receivers`` is readable; send queued frames meanwhile."""
        poll = select.poll()
        for receiver in receivers:
            poll.register(receiver, select.POLLIN)
        while True:
            for sender in self._blocked.values():
                poll.register(sender, select.POLLOUT)
            ready = {fd for fd, _ in poll.poll()}
            for to, sender in list(self._blocked.items()):
                if sender.fileno() in ready and sender.flush():
                    poll.unregister(sender)
                    del self._blocked[to]
            if any(receiver.fileno() in ready for receiver in receivers):
                return

    def _close_senders(self, linger_s: float) -> None:
        """Send queued frames for at most ``linger_s`` seconds, and close the senders."""
        until_s = time.monotonic() + linger_s
        while self._blocked and (remaining_s := until_s - time.monotonic()) > 0:
            poll = select.poll()
            for sender in self._blocked.values():
                poll.register(sender, select.POLLOUT)
            poll.poll(1000 * min(remaining_s, LINGER_S))
            self._flush()
        for sender in self._senders.values():
            sender.close()


class UnixSipMail(_End, SipMail):
    """One SIP's end of mail over Unix datagrams, with a second receiver for peers."""

    def __init__(
        self, address: int, broker: str, endpoint: str, keys: SipKeys | None = None, options: MailOptions = DEFAULTS
    ) -> None:
        check_bind(endpoint, None)
        broker_path = _path(broker)
        super().__init__(address, broker_path, _control_path(broker_path, address))
        with contextlib.ExitStack() as undo:
            undo.callback(self._receiver.close)
            self._data = undo.enter_context(contextlib.closing(_Receiver(_path(endpoint))))
            self._await_broker()
            undo.pop_all()

    def _await_broker(self) -> None:
        """Connect to the broker.

        Raises:
            ConnectionError: when no broker listens within ``LISTENER_S``.
        """
        until_s = time.monotonic() + LISTENER_S
        while BROKER not in self._senders:
            try:
                self._senders[BROKER] = _Sender(self._address, self._broker_path)
            except (FileNotFoundError, ConnectionRefusedError):
                if time.monotonic() >= until_s:
                    raise ConnectionError(f"no broker listens at {self._broker_path}; start the broker first") from None
                time.sleep(RETRY_S)

    def _path_of(self, to: int) -> str:
        return self._broker_path if to == BROKER else _path(self._endpoints[to])

    @property
    def endpoint(self) -> str:
        return f"{SCHEME}{self._data.path}"

    def recv_control(self) -> bytes:
        return self.receive()[1]

    def recv_data(self) -> bytes:
        while True:
            received = self._data.receive_now() or self._receiver.receive_now()
            if received is not None:
                return received[1]
            self._wait(self._data, self._receiver)

    def poll_control(self) -> list[bytes]:
        self._flush()
        frames = []
        while (received := self._receiver.receive_now()) is not None:
            frames.append(received[1])
        return frames

    def close(self) -> None:
        # Receivers first: a peer that closes too must not wait for room here.
        self._receiver.close()
        self._data.close()
        self._close_senders(LINGER_S)


class UnixBroker(_End, BrokerMail):
    """The broker's end of mail over Unix datagrams."""

    def __init__(self, endpoint: str, keys: BrokerKeys | None = None, options: MailOptions = DEFAULTS) -> None:
        check_bind(endpoint, None)
        super().__init__(BROKER, _path(endpoint), _path(endpoint))

    @property
    def endpoint(self) -> str:
        return f"{SCHEME}{self._broker_path}"

    def close(self) -> None:
        self._close_senders(BROKER_LINGER_S)
        self._receiver.close()


class UnixLauncher(_End, LauncherMail):
    """The launcher's end of mail over Unix datagrams. Frames sent before the broker listens are queued."""

    def __init__(self, broker: str, keys: LauncherKeys | None = None, options: MailOptions = DEFAULTS) -> None:
        check_bind(broker, None)
        super().__init__(LAUNCHER, _path(broker), _control_path(_path(broker), LAUNCHER))
        self._early: deque[bytes] = deque()

    @property
    def pollable(self) -> int:
        return self._receiver.fileno()

    @property
    def unsent(self) -> bool:
        return bool(self._early or self._blocked)

    def send(self, to: int, frame: bytes) -> None:
        assert to == BROKER
        self._early.append(frame)
        self._flush()

    def receive_waiting(self) -> Iterator[bytes]:
        self._flush()
        while (received := self._receiver.receive_now()) is not None:
            yield received[1]

    def close(self) -> None:
        self._close_senders(0.0)
        self._receiver.close()

    def _flush(self) -> None:
        super()._flush()
        while self._early and super().send(BROKER, self._early[0]):
            self._early.popleft()
