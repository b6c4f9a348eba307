"""Mail over real sockets for tests: its ends opened on demand, waits that cannot hang, a second thread. Not a test.

A test that uses these takes the fixture ``workdir`` from this file: endpoints are relative to its folder.
"""

import contextlib
import random
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import zmq

from broker.ids import BROKER
from broker.mail.base import MailOptions
from broker.mail.kinds import MailKind
from broker.mail.unix import PIECE_BYTES
from broker.security import JobKeys

END_S = 600
"""Far more than any test needs; it only stops one that hangs."""
SIZES = [0, 1, PIECE_BYTES - 1, PIECE_BYTES, PIECE_BYTES + 1, 2 * PIECE_BYTES, 3 * 2**20 + 7]


def frame_of(sender: int, number: int, nbytes: int) -> bytes:
    """Bytes that differ in every frame, and between the pieces of one."""
    return random.Random(f"{sender} {number}").randbytes(nbytes)


def free_port() -> int:
    """A port without a listener."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Ends:
    """The ends of one mail, opened on demand and closed with the test, with ``keys`` and over ``tcp`` if set."""

    def __init__(self, kind: MailKind, keys: JobKeys | None = None, tcp: bool = False) -> None:
        self.kind = kind
        self.keys = keys
        self._tcp = tcp
        self._ports = {"broker": free_port()}
        self.sips: dict[int, Any] = {}
        self.broker: Any = None
        self.launcher: Any = None

    def at(self, name: str) -> str:
        """Where ``broker`` or ``sip-3`` listens."""
        if not self._tcp:
            return self.kind.local(name)
        if name not in self._ports:
            self._ports[name] = free_port()
        return f"tcp://127.0.0.1:{self._ports[name]}"

    def open_broker(self) -> Any:
        self.broker = self.kind.broker(self.at("broker"), self.keys and self.keys.for_broker())
        return self.broker

    def open_sip(self, rank: int, **more: Any) -> Any:
        """``more``: fields of ``MailOptions``."""
        keys = self.keys and self.keys.for_sip(rank)
        options = MailOptions(**more)
        self.sips[rank] = self.kind.sip(rank, self.at("broker"), self.at(f"sip-{rank}"), keys, options)
        return self.sips[rank]

    def open_launcher(self) -> Any:
        self.launcher = self.kind.launcher(self.at("broker"), self.keys and self.keys.for_launcher())
        return self.launcher

    def open_all(self, sips: int) -> None:
        """A broker that every SIP has sent to, and SIPs connected to each other."""
        self.open_broker()
        for rank in range(sips):
            self.open_sip(rank).send(BROKER, b"here")
        assert sorted(self.broker.receive() for _ in range(sips)) == [(rank, b"here") for rank in range(sips)]
        for sip in self.sips.values():
            sip.connect_peers(tuple(self.at(f"sip-{rank}") for rank in range(sips)))

    def close(self) -> None:
        if self.launcher is not None:
            self.launcher.close()
        for end in (*self.sips.values(), self.broker):
            if end is not None:
                end.close()


@pytest.fixture
def workdir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Endpoints are relative, since a socket's path must be short; a test that hangs fails."""

    def too_long(*_: object) -> None:
        raise TimeoutError("this test hangs")

    monkeypatch.chdir(tmp_path)
    before = signal.signal(signal.SIGALRM, too_long)
    signal.alarm(END_S)
    yield tmp_path
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@contextlib.contextmanager
def in_thread(action: Callable[[], object]) -> Iterator[None]:
    """Run ``action`` in a thread; when the block is left, wait for its end and check that it has not failed."""
    failed: list[BaseException] = []

    def run() -> None:
        try:
            action()
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield
        thread.join(END_S)
        assert not thread.is_alive(), "the thread hangs"
    finally:
        assert failed == []


def launcher_frames(launcher: Any, frames: int) -> list[bytes]:
    """Wait for so many frames at the launcher, as the engine does."""
    poller = zmq.Poller()
    poller.register(launcher.pollable, zmq.POLLIN)
    found = list(launcher.receive_waiting())
    while len(found) < frames:
        poller.poll(1)
        found += launcher.receive_waiting()
    return found
