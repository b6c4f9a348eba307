"""Who may come in: answers ZeroMQ's question for each new connection to a listening socket (ZAP, RFC 27).

A thread of our own, not pyzmq's authenticator: it ends with its context, so nothing has to stop it and no ending can
forget to; it lets nobody in by default, of no mechanism; and it gives each connection the name of the member whose
key it is, which libzmq then fastens to every frame (``User-Id``). It must be a thread: a SIP may compute for minutes
without looking at its mail, while peers wait to be let in. It sleeps in a receive without the GIL.
"""

import threading
from collections.abc import Callable, Mapping

import zmq
from zmq.utils import z85

ENDPOINT = "inproc://zeromq.zap.01"
DOMAIN = "ahbm"
_VERSION = b"1.0"


class ZapAuthenticator:
    """Lets in who has one of the keys of ``members`` (Z85 to name), in one context, for as long as that lives.

    ``turned_away`` is called, in the doorman's thread, with where a stranger came from and what is wrong with it.
    """

    def __init__(
        self,
        context: "zmq.Context[zmq.Socket[bytes]]",
        members: Mapping[str, str],
        turned_away: Callable[[str, str], None],
    ) -> None:
        self._names = {z85.decode(key): name.encode() for key, name in members.items()}
        self._turned_away = turned_away
        # Not among the sockets that the context closes: that would be from another thread than the one that waits.
        self._socket: zmq.Socket[bytes] = zmq.Context.shadow(context.underlying).socket(zmq.REP)
        self._socket.setsockopt(zmq.LINGER, 0)
        self._socket.bind(ENDPOINT)
        self._thread = threading.Thread(target=self._serve, name="doorman", daemon=True)
        self._thread.start()

    def join(self) -> None:
        """After the context has been terminated: wait for the thread."""
        self._thread.join()

    def answer(self, question: list[bytes]) -> list[bytes]:
        """The answer to one question."""
        number = question[1] if len(question) > 1 else b""
        name, why = self._decide(question)
        if name is None:
            where = question[3].decode(errors="replace") if len(question) > 3 else ""
            self._turned_away(where, why)
            return [_VERSION, number, b"400", b"not of this run", b"", b""]
        return [_VERSION, number, b"200", b"", name, b""]

    def _decide(self, question: list[bytes]) -> tuple[bytes | None, str]:
        if len(question) != 7 or question[0] != _VERSION or question[2] != DOMAIN.encode():
            return None, "with a question that is not understood"
        if question[5] != b"CURVE":
            return None, "without a key"
        return self._names.get(question[6]), "with a key that is not of this run"

    def _serve(self) -> None:
        try:
            while True:
                self._socket.send_multipart(self.answer(self._socket.recv_multipart()))
        except zmq.ContextTerminated:
            pass
        finally:
            self._socket.close()


def member_of(frame: zmq.Frame) -> str | None:
    """The name of the member whose key a frame came with; None for none."""
    try:
        return str(frame.get("User-Id")) or None
    except zmq.ZMQError:
        return None
