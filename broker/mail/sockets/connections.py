"""The state of a connection, from ZeroMQ's monitor events. Pure: no sockets, no clock of its own.

Only these events show a client that the server refused it; without them, a client without a key, or with a wrong server
key, would retry forever without a message.
"""

from collections.abc import Callable
from typing import Literal

import zmq

from broker.ids import BROKER, LAUNCHER
from broker.mail.base import Notice, NoticeKind

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
_OTHER_PROGRAM = "does not speak this protocol: it is another program, or another version of this one"
_TICKET = "use the ticket that was written for this run"
_WANTS_A_KEY = f"wants a key: {_TICKET}"


class Connection:
    """A connection of this process to ``peer``, which listens. Once ``gone`` is set, it stays.

    ``until_s``: the deadline for the handshake on the caller's clock, None for none, ``timeout_s`` after its start.
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
        """The deadline of the handshake, while it is pending."""
        return self._until_s if self._state == "trying" and self.gone is None else None

    def note(self, event: int, number: int) -> None:
        """Take one event and its value."""
        match event:
            case zmq.EVENT_HANDSHAKE_SUCCEEDED:
                self._state = "up"
            case zmq.EVENT_HANDSHAKE_FAILED_AUTH:
                self.refuse(f"refused this process's key: {_TICKET}")
            case zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL:
                # libzmq does not retry after this one.
                mismatch = number == zmq.PROTOCOL_ERROR_ZMTP_MECHANISM_MISMATCH
                no_key = f"has no key, but should: {_TICKET}" if self._has_keys else _WANTS_A_KEY
                self.refuse(no_key if mismatch else _OTHER_PROGRAM)
            case zmq.EVENT_DISCONNECTED if self._state == "up":
                self._end("lost", f"the connection to {self._peer_name} is lost: its process, its host or the network")
            case zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL:
                self._retries = True
                self._failures += 1
                if self._failures >= MAX_FAILURES:
                    differs = f"breaks every handshake off: its key differs from the ticket's; {_TICKET}"
                    # Without a key, this or the mismatch is reported: it depends on how fast the server closes.
                    self.refuse(differs if self._has_keys else _WANTS_A_KEY)
            case zmq.EVENT_DISCONNECTED if self._retries:
                self._retries = False
            case zmq.EVENT_DISCONNECTED:
                # The only event for bytes of another program; libzmq does not retry after it.
                self.refuse(_OTHER_PROGRAM)

    def check_deadline(self, now_s: float) -> None:
        """End the connection if the handshake is pending at its deadline."""
        if self.until_s is not None and now_s >= self.until_s:
            late = f"{self._peer_name} did not answer within {self._timeout_s:g} s: it has not been started, has ended"
            self._end("not_joined", f"{late}, or cannot be reached from this host")

    def refuse(self, text: str) -> None:
        """The other end does not accept this process."""
        self._end("refused", f"{self._peer_name} {text}")

    @property
    def _peer_name(self) -> str:
        name = {BROKER: "the broker", LAUNCHER: "the launcher"}.get(self._peer, f"SIP {self._peer}")
        return f"{name} at {self._endpoint}"

    def _end(self, kind: NoticeKind, text: str) -> None:
        if self.gone is None:
            self.gone = Notice(kind, self._peer, self._endpoint, text)


class Listener:
    """The connections to a socket that listens.

    Events do not name their connection, so ``DISCONNECTED`` is attributed by counting: a failed handshake is followed
    at once by its own; another program's bytes make no other event. Clients that failed authentication are not reported
    here: the authenticator has reported them with more detail.
    """

    def __init__(self, endpoint: Callable[[], str]) -> None:
        self._endpoint = endpoint
        self._up = 0
        self._unauthorized = 0
        self._failed = False

    def note(self, event: int) -> Notice | None:
        """Take one event; the notice that follows from it, if any."""
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
            why = "it had no key or a wrong server key, is another program, or was silent"
            return Notice("rejected", None, endpoint, f"rejected a connection to {endpoint}: {why}")
        self._up -= 1
        return Notice("lost", None, endpoint, f"a connection to {endpoint} has ended")
