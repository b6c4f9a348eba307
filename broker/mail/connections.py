"""What becomes of a connection, told from ZeroMQ's monitor events. Pure: no sockets, no clock of its own.

A client that is refused hears of it only by these events; one without a key, or that expects another key of the
server, would try again and again in silence.
"""

from collections.abc import Callable
from typing import Literal

import zmq

from broker.ids import BROKER, LAUNCHER
from broker.mail.base import Notice, NoticeKind

EVENTS = (
    zmq.EVENT_HANDSHAKE_SUCCEEDED
    | zmq.EVENT_HANDSHAKE_FAILED_AUTH
    | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
    | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
    | zmq.EVENT_DISCONNECTED
)
PATIENCE = 3
"""Handshakes that may break off in a row before it is a refusal: whoever answers may be starting, or ending."""


def name_of(who: int | None) -> str:
    """Who is at the other end, in words."""
    return {BROKER: "the broker", LAUNCHER: "the launcher", None: "somebody"}.get(who, f"SIP {who}")


class Connection:
    """One connection of ours to ``who``, who listens. Once it is ``gone``, it stays so.

    ``until_s``: by when it must be up, on the caller's clock; None for never mind. ``has_keys``: whether we came
    with a key.
    """

    def __init__(self, who: int, endpoint: str, has_keys: bool, until_s: float | None, patience_s: float) -> None:
        self.who = who
        self.gone: Notice | None = None
        self._endpoint = endpoint
        self._has_keys = has_keys
        self._patience_s = patience_s
        self._until_s = until_s
        self._state: Literal["trying", "up"] = "trying"
        self._broken_off = 0
        self._retries = False

    @property
    def until_s(self) -> float | None:
        """By when something must have happened."""
        return self._until_s if self._state == "trying" and self.gone is None else None

    def note(self, event: int, number: int) -> None:
        """Take one event and the number that it came with."""
        if self.gone is not None:
            return
        match event:
            case zmq.EVENT_HANDSHAKE_SUCCEEDED:
                self._state = "up"
            case zmq.EVENT_HANDSHAKE_FAILED_AUTH:
                self._end("refused", f"{self._there} refused this process's key: {_TICKET}")
            case zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL:
                # libzmq does not try again after this one.
                mismatch = number == zmq.PROTOCOL_ERROR_ZMTP_MECHANISM_MISMATCH
                self._end("refused", f"{self._there} {self._no_key if mismatch else _OTHER_PROGRAM}")
            case zmq.EVENT_DISCONNECTED if self._state == "up":
                self._end("lost", f"the connection to {self._there} is lost: its process, its host or the network")
            case zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL:
                self._retries = True
                self._broken_off += 1
                if self._broken_off >= PATIENCE:
                    self._end("refused", f"{self._there} breaks every handshake off: {self._likely}; {_TICKET}")
            case zmq.EVENT_DISCONNECTED if self._retries:
                self._retries = False
            case zmq.EVENT_DISCONNECTED:
                # Nothing else is told of another program's first words; nor does libzmq try again after them.
                self._end("refused", f"{self._there} {_OTHER_PROGRAM}")

    def look(self, now_s: float) -> None:
        """Note that it is too late, if it is."""
        if self.until_s is not None and now_s >= self.until_s:
            after = (
                f"did not answer within {self._patience_s:g} s: it has not been started, has ended, "
                "or cannot be reached from this host"
            )
            self._end("not_joined", f"{self._there} {after}")

    def refuse(self, text: str) -> None:
        """The other end has said by itself that it does not want us."""
        self._end("refused", f"{self._there} {text}")

    @property
    def _there(self) -> str:
        return f"{name_of(self.who)} at {self._endpoint}"

    @property
    def _no_key(self) -> str:
        return f"has no key, but should: {_TICKET}" if self._has_keys else f"wants a key: {_TICKET}"

    @property
    def _likely(self) -> str:
        return "it has another key than this process was told" if self._has_keys else "it wants a key"

    def _end(self, kind: NoticeKind, text: str) -> None:
        if self.gone is None:
            self.gone = Notice(kind, self.who, self._endpoint, text)


_OTHER_PROGRAM = "does not speak this protocol: it is another program, or another version of this one"
_TICKET = "use the ticket that was written for this run"


class Listener:
    """Where others connect to us. Events do not say whose they are, so an ending is told as what it can only be.

    Whom the doorman turned away, the doorman has told of, and better. A handshake that fails is followed by the end of
    that connection, with nothing between; other programs' first words make no event but that end.
    """

    def __init__(self, endpoint: Callable[[], str]) -> None:
        self._endpoint = endpoint
        self._up = 0
        self._turned_away = 0
        self._failed = False

    def note(self, event: int) -> Notice | None:
        """Take one event; what is worth telling of it."""
        match event:
            case zmq.EVENT_HANDSHAKE_SUCCEEDED:
                self._up += 1
            case zmq.EVENT_HANDSHAKE_FAILED_AUTH:
                self._turned_away += 1
            case zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL:
                self._failed = True
            case zmq.EVENT_DISCONNECTED:
                return self._ended()
        return None

    def _ended(self) -> Notice | None:
        failed, self._failed = self._failed, False
        if not failed and self._turned_away:
            self._turned_away -= 1
            return None
        if failed or not self._up:
            how = "without a key, or with another one for us, or is another program, or was silent"
            return self._notice("stranger", f"somebody came to {self._endpoint()} {how}")
        self._up -= 1
        return self._notice("lost", f"a connection to {self._endpoint()} has ended")

    def _notice(self, kind: NoticeKind, text: str) -> Notice:
        return Notice(kind, None, self._endpoint(), text)
