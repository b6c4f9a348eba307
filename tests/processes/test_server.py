"""The fork server: it starts processes on order, reports each exit, and kills on order or when its owner has exited."""

import gc
import os
import resource
import select
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from launcher.processes.fork_server import (
    ForkServer,
    KillAll,
    NotStarted,
    ProcessExited,
    ProcessMessage,
    ProcessStarted,
    Ready,
    ServerEvent,
    SetUp,
    SetupFailed,
    SignalProcess,
    StartProcess,
)

pytestmark = pytest.mark.processes

END_S = 600
"""Nobody needs as long; only for a test not to hang."""


class Programs:
    """An entry whose processes are functions by rank; an order is a list of texts to send."""

    def __init__(self, *programs: Callable[[], int]) -> None:
        self._programs = list(programs)

    def set_up(self, ticket: str) -> None:
        if not ticket:
            raise ValueError("an empty ticket")
        self._programs.append(lambda: 0)

    def run(self, rank: int | None, order: list[str], tell: Callable[[str], None]) -> int:
        for word in order:
            tell(word)
        return self._programs[rank or 0]()


def served(folder: Path, *programs: Callable[[], int]) -> ForkServer:
    """A server with commands to start all programs, as ranks from 0 on."""
    server = ForkServer(Programs(*programs), str(folder))
    for rank in range(len(programs)):
        server.order(StartProcess(rank, 0, []))
    return server


def news_until(server: ForkServer, enough: Callable[[list[ServerEvent]], bool]) -> list[ServerEvent]:
    """All news until there is enough, or the server is gone; blocks."""
    found: list[ServerEvent] = []
    while not server.gone and not enough(found):
        assert select.select([server.fileno()], [], [], END_S)[0], "it does not end"
        found += server.events()
    return found


def all_ended(count: int) -> Callable[[list[ServerEvent]], bool]:
    return lambda found: sum(isinstance(event, ProcessExited) for event in found) == count


def first_started(server: ForkServer) -> ProcessStarted:
    found = news_until(server, lambda found: any(isinstance(event, ProcessStarted) for event in found))
    return next(event for event in found if isinstance(event, ProcessStarted))


def stand() -> int:
    """Wait for a signal."""
    signal.pause()
    return 0


def say(*words: str) -> int:
    print(*words)
    return 0


def fail() -> int:
    raise ValueError("as it must")


def test_it_reports_how_each_process_exits(tmp_path):
    server = served(
        tmp_path,
        partial(say, "hello"),
        lambda: 3,
        lambda: os.kill(os.getpid(), signal.SIGKILL) or 0,
        fail,
        partial(os._exit, 9),
    )
    news = news_until(server, all_ended(5))
    server.close()
    started = [event for event in news if isinstance(event, ProcessStarted)]
    assert [event.rank for event in started] == list(range(5))
    ended = {event.rank: event.status for event in news if isinstance(event, ProcessExited)}
    assert ended == {0: 0, 1: 3, 2: -signal.SIGKILL, 3: 70, 4: 9}
    assert {event.pid for event in started} == {event.pid for event in news if isinstance(event, ProcessExited)}
    assert (tmp_path / "sip-0.log").read_text() == "hello\n"
    assert "ValueError: as it must" in (tmp_path / "sip-3.log").read_text()
    assert (server.gone, server.status) == (True, 0)


def test_the_server_makes_the_folder_that_it_removes(tmp_path):
    folder = tmp_path / "new"
    server = ForkServer(Programs(), str(folder))
    assert folder.stat().st_mode & 0o777 == 0o700
    server.abandon()
    assert not folder.exists()


def test_a_folder_that_cannot_be_made(tmp_path):
    with pytest.raises(FileNotFoundError):
        ForkServer(Programs(), str(tmp_path / "no" / "such"))


def test_processes_have_names_that_ps_shows(tmp_path):
    server = ForkServer(Programs(lambda: say(Path("/proc/self/comm").read_text())), str(tmp_path))
    server.order(StartProcess(None, 0, []))
    server.order(StartProcess(0, 0, []))
    news_until(server, all_ended(2))
    named = Path(f"/proc/{server.pid}/comm").read_text()
    server.close()
    logs = [(tmp_path / f"{name}.log").read_text().strip() for name in ("broker", "sip-0")]
    assert (named, logs) == ("ahbm-server\n", ["ahbm-broker", "ahbm-sip-0"])


def test_it_kills_them_all_on_order(tmp_path):
    server = served(tmp_path, stand, stand, lambda: 0)
    server.order(KillAll())
    server.order(KillAll())
    found = news_until(server, all_ended(3))
    ended = {event.rank: event.status for event in found if isinstance(event, ProcessExited)}
    server.close()
    assert (ended[0], ended[1]) == (-signal.SIGKILL, -signal.SIGKILL)
    assert ended[2] in (0, -signal.SIGKILL)
    assert (tmp_path / "sip-0.log").exists()


def test_it_sends_one_of_them_a_signal(tmp_path):
    server = served(tmp_path, stand, stand)
    server.order(SignalProcess(0, signal.SIGTERM))
    server.order(SignalProcess(7))
    found = news_until(server, all_ended(1))
    server.close()
    assert [(event.rank, event.status) for event in found if isinstance(event, ProcessExited)] == [(0, -signal.SIGTERM)]


def test_the_next_incarnation_writes_on_in_the_same_log(tmp_path):
    server = served(tmp_path, partial(say, "hello"))
    news_until(server, all_ended(1))
    server.order(StartProcess(0, 1, []))
    (ended,) = (event for event in news_until(server, all_ended(1)) if isinstance(event, ProcessExited))
    server.close()
    assert (ended.rank, ended.incarnation, ended.status) == (0, 1, 0)
    assert (tmp_path / "sip-0.log").read_text() == "hello\n--- incarnation 1 ---\nhello\n"


def test_messages_of_a_process_are_forwarded(tmp_path):
    server = ForkServer(Programs(lambda: 0), str(tmp_path))
    words = ["one", "x" * 100_000]
    server.order(StartProcess(0, 3, words))
    found = news_until(server, lambda found: sum(isinstance(event, ProcessMessage) for event in found) == 2)
    server.close()
    messages = [event for event in found if isinstance(event, ProcessMessage)]
    assert messages == [ProcessMessage(0, 3, word) for word in words]


def test_a_set_up_comes_before_the_first_start_and_its_error_is_reported(tmp_path):
    server = ForkServer(Programs(), str(tmp_path))
    server.order(SetUp(""))
    server.order(SetUp("a"))
    server.order(StartProcess(0, 0, []))
    first, second, *rest = news_until(server, all_ended(1))
    server.close()
    assert (first, second) == (SetupFailed("an empty ticket"), Ready())
    assert [event.status for event in rest if isinstance(event, ProcessExited)] == [0]


@pytest.mark.fault
def test_a_process_that_cannot_be_started_is_news(tmp_path):
    """No descriptor is left for the folder of its log; later there is one again."""
    server = ForkServer(Programs(lambda: 0), str(tmp_path))
    server.order(SetUp("a"))
    news_until(server, bool)
    soft, hard = resource.prlimit(server.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(server.pid, resource.RLIMIT_NOFILE, (1, hard))
    server.order(StartProcess(0, 0, []))
    (news,) = news_until(server, bool)
    assert news == NotStarted(0, 0, f"Too many open files ({tmp_path}); raise ulimit -n")
    resource.prlimit(server.pid, resource.RLIMIT_NOFILE, (soft, hard))
    server.order(StartProcess(0, 1, []))
    assert [event.status for event in news_until(server, all_ended(1)) if isinstance(event, ProcessExited)] == [0]
    server.close()


def test_orders_that_it_has_no_time_to_read(tmp_path):
    """It is stopped until its process has exited and more orders wait than it reads at once; none is lost."""
    server = served(tmp_path, stand)
    started = first_started(server)
    handle = os.pidfd_open(started.pid)
    os.kill(server.pid, signal.SIGSTOP)
    os.waitid(os.P_PID, server.pid, os.WSTOPPED)
    os.kill(started.pid, signal.SIGTERM)
    assert select.select([handle], [], [], END_S)[0]
    ordered = 0
    while not server.unsent:
        server.order(SetUp("a" * 60_000))
        server.order(KillAll())
        ordered += 1
    os.kill(server.pid, signal.SIGCONT)
    found = news_until(server, lambda found: len(found) == 1 + ordered)
    server.close()
    os.close(handle)
    assert found.count(Ready()) == ordered
    assert ProcessExited(0, 0, started.pid, -signal.SIGTERM) in found


def test_without_its_owner_it_kills_them_and_removes_their_folder(tmp_path):
    """As after a kill of the launcher: its socket is closed before the processes have exited."""
    folder = tmp_path / "run"
    folder.mkdir()
    server = served(folder, stand)
    started = first_started(server)
    handle = os.pidfd_open(started.pid)
    server.abandon()
    assert select.select([handle], [], [], 0)[0], "it outlives the server"
    os.close(handle)
    assert not folder.exists()


def test_when_it_is_killed_the_kernel_kills_its_children(tmp_path):
    server = served(tmp_path, stand)
    started = first_started(server)
    handle = os.pidfd_open(started.pid)
    os.kill(server.pid, signal.SIGKILL)
    assert news_until(server, all_ended(1)) == []
    assert select.select([handle], [], [], END_S)[0]
    os.close(handle)
    assert server.status == -signal.SIGKILL
    server.close()


def test_one_that_is_stopped_does_not_keep_the_end_waiting(tmp_path, monkeypatch):
    monkeypatch.setattr("launcher.processes.fork_server.CLOSE_S", 0.01)
    server = served(tmp_path, stand)
    started = first_started(server)
    handle = os.pidfd_open(started.pid)
    os.kill(server.pid, signal.SIGSTOP)
    os.waitid(os.P_PID, server.pid, os.WSTOPPED)
    server.close()
    assert select.select([handle], [], [], END_S)[0]
    os.close(handle)
    assert server.status == -signal.SIGKILL


def test_its_children_have_no_terminal_input_and_a_log_of_their_own(tmp_path):
    def ask() -> int:
        return say(repr(os.read(0, 1)), str(os.getsid(0) != sid))

    sid = os.getsid(0)
    server = served(tmp_path, ask, partial(say, "b"))
    news_until(server, all_ended(2))
    server.close()
    logs = {path.name: path.read_text() for path in Path(tmp_path).iterdir()}
    assert logs == {"sip-0.log": "b'' True\n", "sip-1.log": "b\n"}


def test_collections_in_its_processes_pass_over_all_that_was_there_and_those_of_its_owner_go_on(tmp_path):
    def is_seen(*things: object) -> list[bool]:
        seen = {id(each) for each in gc.get_objects()}
        return [id(thing) in seen for thing in things]

    frozen: list[object] = []
    gc.freeze()
    new: list[object] = []
    server = served(tmp_path, lambda: say(str(is_seen(frozen, new))))
    news_until(server, all_ended(1))
    server.close()
    assert is_seen(frozen, new) == [False, True]
    assert (tmp_path / "sip-0.log").read_text() == "[False, False]\n"
