"""The preloaded server: it starts processes, tells each end, kills when it is told to or is left alone.

Seen to fail with these bugs planted: a reset connection that raises, a ``KILL`` that is only understood alone, a
folder that stays when the launcher's end is closed early.
"""

import os
import select
import signal
import time
from functools import partial
from pathlib import Path

import pytest

from launcher.server import Ended, Server, Started

pytestmark = pytest.mark.processes

END_S = 10
"""Nobody needs as long; only for a test not to hang."""


def news_until_gone(server: Server) -> list[Started | Ended]:
    """Everything that it tells until it is gone; blocks."""
    found = []
    while not server.gone:
        assert select.select([server.fileno()], [], [], END_S)[0], "it does not end"
        found += server.news()
    return found


def stand() -> int:
    """Until a signal ends it."""
    signal.pause()
    return 0


def say(*words: str) -> int:
    print(*words)
    return 0


def fail() -> int:
    raise ValueError("as it must")


def test_it_tells_how_each_process_ends(tmp_path):
    programs = {
        "good": partial(say, "hello"),
        "three": lambda: 3,
        "killed": lambda: os.kill(os.getpid(), signal.SIGKILL) or 0,
        "raises": fail,
        "leaves": partial(os._exit, 9),
    }
    server = Server(programs, str(tmp_path))
    news = news_until_gone(server)
    server.close()
    started = [event for event in news if isinstance(event, Started)]
    assert [event.name for event in started] == list(programs)
    ended = {event.name: event.status for event in news if isinstance(event, Ended)}
    assert ended == {"good": 0, "three": 3, "killed": -signal.SIGKILL, "raises": 70, "leaves": 9}
    assert {event.pid for event in started} == {event.pid for event in news if isinstance(event, Ended)}
    assert (tmp_path / "good.log").read_text() == "hello\n"
    assert "ValueError: as it must" in (tmp_path / "raises.log").read_text()


def test_it_kills_them_all_when_told_to(tmp_path):
    server = Server({"a": stand, "b": stand, "c": lambda: 0}, str(tmp_path))
    server.kill_all()
    server.kill_all()
    ended = {event.name: event.status for event in news_until_gone(server) if isinstance(event, Ended)}
    server.close()
    assert (ended["a"], ended["b"]) == (-signal.SIGKILL, -signal.SIGKILL)
    assert ended["c"] in (0, -signal.SIGKILL)
    assert (tmp_path / "a.log").exists()


def test_orders_that_it_has_no_time_to_read(tmp_path):
    """It is held until its process has ended and more orders wait than it reads at once: it goes with some unread."""
    server = Server({"a": stand}, str(tmp_path))
    select.select([server.fileno()], [], [])
    (started,) = server.news()
    handle = os.pidfd_open(started.pid)
    os.kill(server._pid, signal.SIGSTOP)
    os.waitid(os.P_PID, server._pid, os.WSTOPPED)
    os.kill(started.pid, signal.SIGTERM)
    assert select.select([handle], [], [], END_S)[0]
    for _ in range(20):
        server.kill_all()
    os.kill(server._pid, signal.SIGCONT)
    ended = news_until_gone(server)
    server.close()
    os.close(handle)
    assert ended == [Ended("a", started.pid, -signal.SIGTERM)]


def test_left_alone_it_kills_them_and_removes_their_folder(tmp_path):
    """What becomes of a launcher that is killed: its end of the socket is closed before the processes have ended."""
    folder = tmp_path / "run"
    folder.mkdir()
    server = Server({"a": stand}, str(folder))
    select.select([server.fileno()], [], [])
    (started,) = server.news()
    handle = os.pidfd_open(started.pid)
    server.close()
    assert select.select([handle], [], [], 0)[0], "it outlives the server"
    os.close(handle)
    assert not folder.exists()


def test_when_it_is_killed_the_kernel_ends_its_children(tmp_path):
    server = Server({"a": stand}, str(tmp_path))
    select.select([server.fileno()], [], [])
    (started,) = server.news()
    handle = os.pidfd_open(started.pid)
    os.kill(server._pid, signal.SIGKILL)
    assert news_until_gone(server) == []
    assert select.select([handle], [], [], END_S)[0]
    os.close(handle)
    server.close()


def test_its_children_have_no_terminal_input_and_a_log_of_their_own(tmp_path):
    def ask() -> int:
        return say(repr(os.read(0, 1)), str(os.getsid(0) != sid))

    sid = os.getsid(0)
    server = Server({"a": ask, "b": partial(say, "b")}, str(tmp_path))
    news_until_gone(server)
    server.close()
    logs = {path.name: path.read_text() for path in Path(tmp_path).iterdir()}
    assert logs == {"a.log": "b'' True\n", "b.log": "b\n"}


def test_it_starts_them_fast(tmp_path):
    """Fifty processes in less time than one interpreter takes to import NumPy a few times."""
    began = time.monotonic()
    server = Server({f"p{number}": lambda: 0 for number in range(50)}, str(tmp_path))
    assert len(news_until_gone(server)) == 100
    server.close()
    assert time.monotonic() - began < 5
