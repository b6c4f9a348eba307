"""The accept guard of a listening socket, by real connections to a process of few files."""

import os
import resource
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest
import zmq

from broker.mail.base import Notice
from broker.mail.sockets import SocketFactory
from broker.security import MARGIN, SPARES, AcceptGuard, JobKeys, release_spares
from launcher.processes.this_host import process_state
from sipsim.core.files import APPEND, open_file

KEYS = JobKeys.fresh(2)
MEMBERS = {KEYS.sips[rank].public: str(rank) for rank in range(2)}


@pytest.fixture
def clients() -> Iterator[list[socket.socket]]:
    """Sockets that connect nowhere yet: those of another process would take none of this one's files."""
    with ExitStack() as held:
        yield [held.enter_context(socket.socket()) for _ in range(100)]


@pytest.fixture
def few_files(clients: list[socket.socket]) -> Iterator[int]:
    """This process can open 60 more."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = len(os.listdir("/proc/self/fd")) + 60
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
    yield limit
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.fixture
def port() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0), backlog=100) as made:
        yield made


def connecting_client(port: socket.socket) -> socket.socket:
    made = socket.socket()
    made.setblocking(False)
    made.connect_ex(port.getsockname())
    return made


def fill(held: ExitStack, until_left: int) -> None:
    """Take files until so many are left."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    while soft - len(os.listdir("/proc/self/fd")) > until_left:
        held.callback(os.close, os.dup(0))


def test_a_guard_blocks_before_the_last_files_are_taken_and_unblocks_again(port: socket.socket, few_files: int) -> None:
    limits: list[int] = []
    guard = AcceptGuard(port.fileno(), limits.append)
    with ExitStack() as held:
        fill(held, MARGIN + 1)
        guard.update()
        assert not guard.is_blocking
        fill(held, MARGIN - 1)
        guard.update()
        assert guard.is_blocking
        assert few_files - len(os.listdir("/proc/self/fd")) >= SPARES
        with connecting_client(port) as asks:
            assert not port_has_connection(port)
            asks.close()
    guard.update()
    assert not guard.is_blocking
    with connecting_client(port):
        assert port_has_connection(port)
    assert limits == [few_files]
    guard.close()
    assert not release_spares()


def port_has_connection(port: socket.socket) -> bool:
    """Loopback connects at once, or not at all."""
    port.settimeout(0.05)
    try:
        port.accept()[0].close()
    except TimeoutError:
        return False
    return True


@pytest.mark.usefixtures("few_files")
@pytest.mark.parametrize(
    "use", [lambda folder: os.close(open_file(folder / "log", APPEND)), lambda _: process_state(os.getpid())]
)
def test_what_this_process_opens_finds_room(port: socket.socket, tmp_path: Path, use: Callable[[Path], object]) -> None:
    process_state(os.getpid())
    guard = AcceptGuard(port.fileno(), lambda _limit: None)
    with ExitStack() as held:
        with suppress(OSError):
            while True:
                held.callback(os.close, os.dup(0))
        use(tmp_path)
        assert guard.is_blocking
    guard.close()


def test_members_are_heard_beside_clients_who_take_all_files(
    few_files: int, clients: list[socket.socket], tmp_path: Path
) -> None:
    factory, own = SocketFactory(KEYS.for_sip(0), MEMBERS), SocketFactory(KEYS.for_sip(1), {})
    server = factory.listen(zmq.PULL, "tcp://127.0.0.1:*")
    client = own.connect(zmq.PUSH, 0, server.endpoint, KEYS.sips[0].public)
    client.send(b"first")
    assert server.socket.poll(10_000)
    assert server.socket.recv() == b"first"
    address, _, number = server.endpoint.removeprefix("tcp://").rpartition(":")
    notices: list[Notice] = []
    for made in clients:
        made.setblocking(False)
        made.connect_ex((address, int(number)))
        if server.socket.poll(10) or notices:
            break
        notices = factory.notices()
    assert notices, "nobody was kept out"
    os.close(open_file(tmp_path / "log", APPEND))
    client.send(b"second")
    assert server.socket.poll(10_000)
    assert server.socket.recv() == b"second"
    assert (notices[0].kind, str(few_files) in notices[0].text) == ("rejected", True)
    own.close(0)
    factory.close(0)
