"""A short measurement of this host: how fast it simulates, on how many processors at a time, and sends messages."""

import os
import socket
import time
from collections.abc import Callable
from typing import NamedTuple

from launcher.processes.children import as_child
from sipsim.engine import Engine

EVENTS = 40_000
ROUND_TRIPS = 500


class Machine(NamedTuple):
    """``event_us``: CPU time of one event. ``parallel``: how many processors the processes of a run get together, not a
    whole number on a busy host. ``round_trip_us``: wall time of a message to another process and back.
    """

    event_us: float
    parallel: float
    round_trip_us: float


def measure(n_processes: int) -> Machine:
    """This host for a run of that many processes; takes about a tenth of a second. It forks."""
    cpu_s = min(_events_s() for _ in range(2))
    together = min(n_processes, len(os.sched_getaffinity(0)))
    parallel = min(together * cpu_s / _together_s(together), float(together))
    round_trip_s = _round_trip_s() if n_processes > 1 else 0.0
    return Machine(cpu_s * 1e6 / EVENTS, parallel, round_trip_s * 1e6)


def _events_s() -> float:
    engine = Engine()

    def again() -> None:
        engine.at(engine.now_ps + 1000, again)

    for start_ps in range(16):
        engine.at(start_ps, again)
    began_s = time.process_time()
    engine.run_before(None, EVENTS)
    return time.process_time() - began_s


def _together_s(number: int) -> float:
    """Wall time of the same work in that many processes at a time."""

    def work() -> int:
        _events_s()
        return 0

    began_s = time.perf_counter()
    others = [_fork(work) for _ in range(number - 1)]
    work()
    for pid in others:
        os.waitpid(pid, 0)
    return time.perf_counter() - began_s


def _round_trip_s() -> float:
    here, there = socket.socketpair()

    def answer() -> int:
        for _ in range(ROUND_TRIPS):
            there.send(there.recv(16))
        return 0

    pid = _fork(answer)
    began_s = time.perf_counter()
    for _ in range(ROUND_TRIPS):
        here.send(b"x")
        here.recv(16)
    took_s = time.perf_counter() - began_s
    os.waitpid(pid, 0)
    here.close()
    there.close()
    return took_s / ROUND_TRIPS


def _fork(program: Callable[[], int]) -> int:
    pid = os.fork()
    if pid == 0:
        as_child(program)
    return pid
