"""Accepts or rejects each new connection to a listening socket (ZeroMQ authentication protocol, RFC 27).

It replaces pyzmq's ``ThreadAuthenticator`` (27.3), which must be stopped before its context is terminated, or ``term``
blocks forever; which writes rejections to a debug log without the client's address; and whose import of asyncio doubles
the start time of a process. This thread ends with its context. With either one, libzmq accepts every client once the
ZAP socket is closed, unless the domain is enforced (``ZAP_ENFORCE_DOMAIN``). It is a thread because a SIP may compute
for minutes without receiving, while peers connect. It waits in a receive without the GIL.
"""

import threading
from collections.abc import Callable, Mapping

import zmq
from zmq.utils import z85

from broker.security.door import LOOK_MS, Door

ENDPOINT = "inproc://zeromq.zap.01"
DOMAIN = "ahbm"
_VERSION = b"1.0"


class ZapAuthenticator:
    """Accepts the clients of one context that have a key of ``members`` (Z85 to name), while the context lives.

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
