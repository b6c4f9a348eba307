"""A short measurement of this host: how fast it simulates, on how many processors at a time, and sends messages."""

import os
import socket
import time
from collections.abc import Callable
from typing import NamedTuple

from launcher.processes.fork_server.children import as_child
from sipsim.core.engine import Engine

EVENTS = 80_000
ROUND_TRIPS = 500
MOST_A_PROCESSOR = 4
"""Processes on a processor that are tried: on a busy host, more of them get more of it."""


class MeasuredHost(NamedTuple):
    """``event_us``: CPU time of one event. ``parallel``: how many processors the processes of a run get together, not a
    whole number on a busy host. ``round_trip_us``: wall time of a message to another process and back.
    """

    event_us: float
    parallel: float
    round_trip_us: float

    @property
    def processors(self) -> int:
        """How many there are."""
        return len(os.sched_getaffinity(0))


def measure(n_processes: int) -> MeasuredHost:
    """This host for a run of that many processes; takes some tenths of a second. It forks."""
    together = min(n_processes, MOST_A_PROCESSOR * len(os.sched_getaffinity(0)))
    events = EVENTS // together + EVENTS // 4

    def share() -> int:
        """How much of a processor this process gets, in percent."""
        wall_s, cpu_s = _events_s(events)
        return round(100 * cpu_s / wall_s)

    others = [_fork(share) for _ in range(together - 1)]
    wall_s, cpu_s = _events_s(events)
    shares = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) / 100 for pid in others]
    round_trip_s = _round_trip_s() if n_processes > 1 else 0.0
    return MeasuredHost(cpu_s * 1e6 / events, cpu_s / wall_s + sum(shares), round_trip_s * 1e6)


def measure_beside(n_processes: int, round_trip_events: float) -> MeasuredHost:
    """This host while a run of that many processes is under way: each of them gets as much of it as this process.

    ``round_trip_events``: how many events a round trip takes as long as; it cannot be measured then.
    """
    wall_s, cpu_s = _events_s(EVENTS)
    parallel = min(n_processes * cpu_s / wall_s, float(len(os.sched_getaffinity(0))))
    event_us = cpu_s * 1e6 / EVENTS
    return MeasuredHost(event_us, parallel, event_us * round_trip_events)


def _events_s(number: int) -> tuple[float, float]:
    """Wall and CPU time of that many events."""
    engine = Engine()

    def again() -> None:
        engine.at(engine.now_ps + 1000, again)

    for start_ps in range(16):
        engine.at(start_ps, again)
    wall_s, cpu_s = time.perf_counter(), time.process_time()
    engine.run_before(None, number)
    return time.perf_counter() - wall_s, time.process_time() - cpu_s


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
