"""The door of a listening socket, by real connections to a process of few files."""

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
from broker.security import MARGIN, SPARES, Door, JobKeys, make_room
from launcher.processes.this_host import process_state
from sipsim.core.files import APPEND, open_file

KEYS = JobKeys.fresh(2)
MEMBERS = {KEYS.sips[rank].public: str(rank) for rank in range(2)}


@pytest.fixture
def strangers() -> Iterator[list[socket.socket]]:
    """Sockets that connect nowhere yet: those of another process would take none of this one's files."""
    with ExitStack() as held:
        yield [held.enter_context(socket.socket()) for _ in range(100)]


@pytest.fixture
def few_files(strangers: list[socket.socket]) -> Iterator[int]:
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


def stranger(port: socket.socket) -> socket.socket:
    made = socket.socket()
    made.setblocking(False)
    made.connect_ex(port.getsockname())
    return made


def fill(held: ExitStack, until_left: int) -> None:
    """Take files until so many are left."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    while soft - len(os.listdir("/proc/self/fd")) > until_left:
        held.callback(os.close, os.dup(0))


def test_a_door_is_shut_before_the_last_files_are_taken_and_opens_again(port: socket.socket, few_files: int) -> None:
    told: list[int] = []
    door = Door(port.fileno(), told.append)
    with ExitStack() as held:
        fill(held, MARGIN + 1)
        door.look()
        assert not door.is_shut
        fill(held, MARGIN - 1)
        door.look()
        assert door.is_shut
        assert few_files - len(os.listdir("/proc/self/fd")) >= SPARES
        with stranger(port) as asks:
            assert not port_has_connection(port)
            asks.close()
    door.look()
    assert not door.is_shut
    with stranger(port):
        assert port_has_connection(port)
    assert told == [few_files]
    door.close()
    assert not make_room()


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
    door = Door(port.fileno(), lambda _limit: None)
    with ExitStack() as held:
        with suppress(OSError):
            while True:
                held.callback(os.close, os.dup(0))
        use(tmp_path)
        assert door.is_shut
    door.close()


def test_members_are_heard_beside_strangers_who_take_all_files(
    few_files: int, strangers: list[socket.socket], tmp_path: Path
) -> None:
    factory, own = SocketFactory(KEYS.for_sip(0), MEMBERS), SocketFactory(KEYS.for_sip(1), {})
    server = factory.listen(zmq.PULL, "tcp://127.0.0.1:*")
    client = own.connect(zmq.PUSH, 0, server.endpoint, KEYS.sips[0].public)
    client.send(b"first")
    assert server.socket.poll(10_000)
    assert server.socket.recv() == b"first"
    address, _, number = server.endpoint.removeprefix("tcp://").rpartition(":")
    notices: list[Notice] = []
    for made in strangers:
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
