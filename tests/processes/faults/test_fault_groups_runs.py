"""Foreign processes at a run, environments that a run must ignore, and programs that change."""

import json
import select
import socket
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from time import monotonic
from typing import Any

import pytest
from launch import END_S, launched
from manual_run import SMALL, ByHand, by_hand

from broker.security import KeyPair

pytestmark = pytest.mark.processes

OTHERS = {
    "RANK": "abc",
    "SLURM_PROCID": "5",
    "LOCAL_RANK": "-3",
    "WORLD_SIZE": "x",
    "AHBM_RANK": "7",
    "MASTER_ADDR": "nowhere",
}
"""What other launchers leave in the environment, wrong and in disagreement."""


@pytest.fixture(scope="module")
def digest() -> str:
    return launched(*SMALL).digest


@pytest.mark.fault
def test_variables_of_other_launchers_are_ignored(digest: str, tmp_path: Path) -> None:
    """Ranks come from the launcher; a script finds the correct ones."""
    assert launched(*SMALL, **OTHERS).digest == digest
    path = tmp_path / "script.py"
    path.write_text(
        "import os\ndef worker(rank, world_size, torch):\n"
        "    print('is', os.environ['RANK'], os.environ['AHBM_RANK'], os.environ['WORLD_SIZE'])\n"
    )
    done = launched(*SMALL, path, **OTHERS)
    assert sorted(done.stderr.splitlines()) == [f"[rank {rank}] is {rank} {rank} 3" for rank in range(3)]


# --- tickets that somebody has changed ------------------------------------------------------------------------


def changed(run: ByHand, rank: int, name: str, change: Callable[[dict[str, Any]], None]) -> Path:
    """A copy of a ticket with something else in it."""
    ticket = json.loads(run.ticket(rank).read_text())
    change(ticket)
    path = run.folder / name
    path.write_text(json.dumps(ticket))
    path.chmod(0o600)
    return path


def of_rank(number: object) -> Callable[[dict[str, Any]], None]:
    return lambda ticket: ticket["spec"].update(rank=number)


def without_keys(ticket: dict[str, Any]) -> None:
    ticket["spec"]["keys"] = None


def with_a_fresh_pair(ticket: dict[str, Any]) -> None:
    pair = KeyPair.fresh()
    ticket["spec"]["keys"]["own"] = {"public": pair.public, "secret": pair.secret}


WRONG: dict[str, tuple[Callable[[dict[str, Any]], None], int, str]] = {
    "beyond": (of_rank(3), 2, " is for rank 3; ranks of this run are 0 to 2; start each rank with the ticket that "),
    "negative": (
        of_rank(-1),
        2,
        " is for rank -1; ranks of this run are 0 to 2; start each rank with the ticket that ",
    ),
    "text": (of_rank("abc"), 2, " is no ticket of ahbm-launch: Expected `int`, got `str` - at `$.spec.rank`"),
    "another": (of_rank(2), 4, " rejects this process, which has the key of SIP 1"),
    "no key": (without_keys, 4, " requires a key: use the ticket that was written for this run"),
    "wrong key": (with_a_fresh_pair, 4, " refused this process's key: use the ticket that was written for this run"),
}
"""What is changed in the ticket of rank 1; exit code and words."""


@pytest.mark.fault
def test_foreign_connections_are_reported_and_the_run_succeeds(tmp_path: Path, digest: str) -> None:
    """All of them connect to one broker, before the SIPs of the run do."""
    with by_hand(tmp_path, *SMALL) as run:
        started = {
            name: run.start_with(changed(run, 1, name.replace(" ", "-"), change))
            for name, (change, _, _) in WRONG.items()
        }
        for name, process in started.items():
            _, said = process.communicate(timeout=END_S)
            _, code, words = WRONG[name]
            assert (process.returncode, said.count("\n")) == (code, 1), (name, said)
            assert words in said, name
        sips = [run.start(rank) for rank in range(3)]
        table, _ = run.broker.communicate(timeout=END_S)
        for sip in sips:
            sip.communicate(timeout=END_S)
    assert (run.broker.returncode, table.splitlines()[-1]) == (0, f"# digest {digest}")


@pytest.mark.fault
def test_a_rank_with_another_model_is_refused_by_name(tmp_path: Path) -> None:
    def slower(ticket: dict[str, Any]) -> None:
        ticket["config"]["components"]["wire"]["ns_per_mm"] = 0.5

    with by_hand(tmp_path, *SMALL) as run:
        run.start(0)
        run.start(2)
        run.start_with(changed(run, 1, "other", slower))
        _, said = run.broker.communicate(timeout=END_S)
    first = next(line for line in said.splitlines() if line.startswith("ahbm-launch: refused"))
    assert run.broker.returncode == 2
    assert " have different plans (" in first
    assert "give all SIPs the same config, algorithm and script" in first


@pytest.mark.fault
def test_a_ticket_of_a_run_that_is_over(tmp_path: Path) -> None:
    """Nothing listens any more; reported after the join timeout."""
    with by_hand(tmp_path, *SMALL, "--join-timeout", "1") as run:
        late = changed(run, 1, "late", lambda _ticket: None)
        run.broker.terminate()
        run.broker.communicate(timeout=END_S)
        sip = run.start_with(late)
        _, said = sip.communicate(timeout=END_S)
    assert (run.broker.returncode, sip.returncode, said.count("\n")) == (143, 4, 1)
    assert said.startswith("SIP 1: the broker at tcp://127.0.0.1:")
    assert " within 1 s" in said


# --- what comes to a port -------------------------------------------------------------------------------------

GARBAGE = (
    b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    b"\0" * 4096,
    bytes(range(256)) * 64,
    b"\xff" + b"\0" * 8 + b"\x7f\x03",
)
SILENT = 300


@pytest.mark.fault
def test_garbage_and_silence_at_the_port_of_a_run(tmp_path: Path, digest: str) -> None:
    with by_hand(tmp_path, *SMALL) as run:
        host, port = place(json.loads(run.ticket(0).read_text())["spec"]["broker"])
        sockets = [socket.create_connection((host, port), END_S) for _ in range(SILENT)]
        try:
            for words, one in zip(GARBAGE * 5, sockets, strict=False):
                one.sendall(words)
            sips = [run.start(rank) for rank in range(3)]
            table, _ = run.broker.communicate(timeout=END_S)
        finally:
            for one in sockets:
                one.close()
        for sip in sips:
            sip.communicate(timeout=END_S)
    assert (run.broker.returncode, table.splitlines()[-1]) == (0, f"# digest {digest}")


def place(endpoint: str) -> tuple[str, int]:
    host, _, port = endpoint.removeprefix("tcp://").rpartition(":")
    return host, int(port)


# --- a slow way -----------------------------------------------------------------------------------------------

DELAY_S = 0.02


class SlowWay:
    """A relay to one port through which every byte takes :data:`DELAY_S`."""

    def __init__(self, to: tuple[str, int]) -> None:
        self._to = to
        self._door = socket.create_server(("127.0.0.1", 0))
        self.endpoint = f"tcp://127.0.0.1:{self._door.getsockname()[1]}"
        self._other: dict[socket.socket, socket.socket] = {}
        self._all = [self._door]
        self._late: deque[tuple[float, socket.socket, bytes]] = deque()
        self._ours, self._end = socket.socketpair()
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def close(self) -> None:
        self._end.close()
        self._thread.join()
        for each in (self._ours, *self._all):
            each.close()

    def _serve(self) -> None:
        while True:
            wait = max(self._late[0][0] - monotonic(), 0) if self._late else None
            ready = select.select([self._door, self._ours, *self._other], [], [], wait)[0]
            if self._ours in ready:
                return
            for source in ready:
                self._take(source)
            while self._late and self._late[0][0] <= monotonic():
                _, target, data = self._late.popleft()
                with suppress(OSError):
                    target.sendall(data) if data else target.shutdown(socket.SHUT_WR)

    def _take(self, source: socket.socket) -> None:
        if source is self._door:
            near, far = self._door.accept()[0], socket.create_connection(self._to)
            self._all += (near, far)
            for each, other in ((near, far), (far, near)):
                each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._other[each] = other
            return
        data = b""
        with suppress(OSError):
            data = source.recv(65536)
        self._late.append((monotonic() + DELAY_S, self._other[source], data))
        if not data:
            self._other.pop(source)


@contextmanager
def slow_way(to: tuple[str, int]) -> Iterator[SlowWay]:
    way = SlowWay(to)
    try:
        yield way
    finally:
        way.close()


@pytest.mark.fault
def test_twenty_milliseconds_to_the_broker_change_no_result(tmp_path: Path) -> None:
    little = (*SMALL, "--bytes", "256")
    with by_hand(tmp_path, *little) as run:
        endpoint = json.loads(run.ticket(1).read_text())["spec"]["broker"]
        with slow_way(place(endpoint)) as way:
            far = changed(run, 1, "far", lambda ticket: ticket["spec"].update(broker=way.endpoint))
            sips = [run.start(0), run.start_with(far), run.start(2)]
            table, _ = run.broker.communicate(timeout=END_S)
            for sip in sips:
                sip.communicate(timeout=END_S)
    assert (run.broker.returncode, table.splitlines()[-1]) == (0, f"# digest {launched(*little).digest}")


# --- programs and hosts ---------------------------------------------------------------------------------------

OTHERWISE = """
import os, signal
import numpy as np
def worker(rank, world_size, torch):
    dist = torch.distributed
    dist.init_process_group()
    tensor = torch.zeros((4, 8), dtype="f32")
    tensor.copy_(torch.from_numpy(np.full((4, 8), os.getpid(), dtype=np.float32)))
    dist.all_reduce(tensor)
    if rank == 1 and os.environ["AHBM_INCARNATION"] == "0":
        os.kill(os.getpid(), signal.SIGKILL)
    dist.all_reduce(torch.ones(4, 8))
"""


@pytest.mark.fault
def test_a_program_that_does_something_else_the_second_time(tmp_path: Path) -> None:
    """Its numbers depend on its process id. The replay detects it, and no number of restarts hides it."""
    (tmp_path / "script.py").write_text(OTHERWISE)
    done = launched(*SMALL, "--max-restarts", "5", "--json", tmp_path / "o.json", tmp_path / "script.py")
    assert (done.exit_code, done.document["error"]["kind"], done.document["digest"]) == (4, "nondeterministic", None)
    first = next(line for line in done.stderr.splitlines() if line.startswith("ahbm-launch: nondeterministic: "))
    assert "SIP 1 was started again and sent packet " in first
    assert "make its program deterministic: no wall clock" in first


SSH = """#!/bin/sh
while case $1 in -o) shift;; -*) true;; *) false;; esac; do shift; done
[ $1 = b ] && ulimit -n ${FILES_OF_B:-256}
shift
exec sh -c "$*"
"""


@pytest.fixture
def ssh(tmp_path: Path) -> dict[str, str]:
    path = tmp_path / "ssh"
    path.write_text(SSH)
    path.chmod(0o700)
    return {"AHBM_SSH": str(path)}


@pytest.mark.fault
def test_hosts_that_speak_ipv6(ssh: dict[str, str], digest: str) -> None:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError as error:
        pytest.skip(f"no IPv6 here: {error}")
    done = launched(*SMALL, "--engine", "ssh", "--hosts", "[::1]:2,b:1", "--bind", "::1", **ssh)
    assert (done.exit_code, done.digest) == (0, digest), done.stderr


def test_an_address_of_another_machine(ssh: dict[str, str], tmp_path: Path) -> None:
    flags = ("--engine", "ssh", "--hosts", "a,b", "--bind", "192.0.2.1", "--json", tmp_path / "o.json")
    done = launched(*SMALL, *flags, **ssh)
    assert (done.exit_code, done.made_files) == (2, False)
    why = "Cannot assign requested address; give an address of this machine"
    what = f"--bind 192.0.2.1: cannot listen on this address: {why}"
    assert done.stderr == f"ahbm-launch: {what}\n"


@pytest.mark.fault
def test_another_host_with_few_open_files(ssh: dict[str, str], tmp_path: Path) -> None:
    """It reports it at set-up, before anything runs."""
    flags = ("--engine", "ssh", "--hosts", "a,b", "--bind", "127.0.0.1", "--json", tmp_path / "o.json")
    done = launched(*SMALL, *flags, FILES_OF_B="24", **ssh)
    assert (done.exit_code, done.document["error"]["kind"]) == (2, "refused")
    what = "b: 3 SIPs need 68 open files in one process; raise ulimit -n from 24, or use fewer --sips"
    assert done.stderr.splitlines()[0] == f"ahbm-launch: refused: {what}"
