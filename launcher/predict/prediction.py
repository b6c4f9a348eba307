"""What a run of the built-in job takes on this host: wall time and memory, before it starts.

A prediction is made from the job's forecast, the costs of ``configs/estimates.yaml`` and a short measurement of the
host: how fast it simulates, on how many processors at a time, and how fast it sends messages.
"""

import os
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import msgspec

from launcher.processes.fork_server import as_child
from launcher.report.progress import Prediction
from sipsim.chips.api.forecast import JobForecast, SizeForecast
from sipsim.chips.api.run_plan import RunPlan
from sipsim.config.load import default_dir
from sipsim.config.yaml import read_mapping
from sipsim.core.engine import Engine
from sipsim.records.job import Job

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


FILE = "estimates.yaml"
MIB = 2**20


class HostSpeed(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What :func:`measure` finds where the costs were measured."""

    event_us: float
    round_trip_us: float


class Times(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Times of single steps; the file has their units and meaning."""

    command_us: float
    command_us_per_sip: float
    replayed_us: float
    window_us: float
    window_round_trips: float
    sip_ms: float
    process_ms: float
    generated_ns: float
    summed_ns: float
    compared_ns: float
    hashed_ns: float


class Memory(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Memory of single parts; the file has their units and meaning."""

    sip_MiB: float
    process_MiB: float
    pair_MiB: float
    others_MiB: float
    tensor_copies: float
    check_copies: float
    second_pass_copies: float
    ring_MiB: float
    ring_messages: float


class Costs(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The file ``estimates.yaml``."""

    host: HostSpeed
    times: Times
    memory: Memory


def read_costs(path: Path | None = None) -> Costs:
    """The costs in a file, by default that of this package."""
    return msgspec.convert(read_mapping(path or default_dir() / FILE), Costs)


class Host(msgspec.Struct, frozen=True):
    """This host now: its ``machine``, the seconds that the command has taken so far, and the memory of its process."""

    machine: MeasuredHost
    started_s: float
    loaded_MiB: float


def predict(forecast: JobForecast, job: Job, plan: RunPlan, in_process: bool, host: Host, costs: Costs) -> Prediction:
    """The prediction. Pure. ``in_process``: all SIPs are simulated in one process (``--engine inproc``)."""
    n_sips, times, machine = plan.system.n_sips, costs.times, host.machine
    speed = machine.event_us / costs.host.event_us
    at_a_time = machine.parallel if in_process else min(machine.parallel, n_sips)
    shared = n_sips * times.command_us_per_sip if in_process else times.command_us_per_sip
    per_element_s = n_sips * speed / 1e9 / at_a_time
    setup_ns = times.generated_ns + (times.summed_ns * n_sips if job.verify_data else 0)
    hashed = sum(size.nbytes for size in forecast.sizes) * times.hashed_ns
    window_us = times.window_us * speed if in_process else times.window_round_trips * machine.round_trip_us
    windows_per_us = n_sips * 1e6 / window_ps(plan)
    started_ms = n_sips * (times.sip_ms + (0 if in_process else times.process_ms)) * speed
    compared_ns = times.compared_ns if job.verify_data else 0
    replayed_us = times.replayed_us if job.verify_data else 0
    return Prediction(
        forecast=forecast,
        startup_s=host.started_s + started_ms / 1000 / at_a_time,
        setup_s=tuple(size.elements * setup_ns * per_element_s for size in forecast.sizes),
        check_s=tuple(size.elements * compared_ns * per_element_s for size in forecast.sizes),
        command_s=(times.command_us + replayed_us + shared) * speed / 1e6 / at_a_time,
        us_s=windows_per_us * window_us / 1e6 if n_sips > 1 else 0.0,
        end_s=hashed * per_element_s,
        memory_MiB=_memory_mib(forecast, job, plan, in_process, host, costs.memory),
        processes=1 if in_process else n_sips + 3,
        share=min(at_a_time / min(machine.processors, 1 if in_process else n_sips), 1.0),
    )


def window_ps(plan: RunPlan) -> int:
    """About how long a granted window is: the least time from an event, over another SIP, to an arrival here."""
    delays = [channel.delay_ps for channel in plan.channels]
    return max(min(delays, default=1) + min(plan.egress_ps, default=0) + min(plan.reactions_ps, default=0), 1)


def _memory_mib(forecast: JobForecast, job: Job, plan: RunPlan, in_process: bool, host: Host, costs: Memory) -> float:
    n_sips = plan.system.n_sips
    largest: SizeForecast = max(forecast.sizes, key=lambda size: size.nbytes)
    # Tensors of earlier sizes are freed when there is need, after some 256 MiB.
    kept_mib = sum({size.n_elem: size.nbytes for size in forecast.sizes}.values()) / MIB
    data_mib = kept_mib + largest.nbytes / MIB * (costs.tensor_copies - 1)
    checked_mib = largest.nbytes / MIB * costs.check_copies if job.verify_data else 0.0
    messages = largest.counts.get("recv", 0) / n_sips
    rings_mib = costs.ring_MiB * min(messages / costs.ring_messages, 1.0)
    sip_mib = (costs.sip_MiB if in_process else costs.process_MiB) + data_mib + rings_mib
    if job.verify_data:
        sip_mib += costs.second_pass_copies * (kept_mib + rings_mib)
    if in_process:
        return host.loaded_MiB + n_sips * sip_mib + checked_mib
    return host.loaded_MiB + costs.others_MiB + n_sips * (sip_mib + checked_mib) + n_sips**2 * costs.pair_MiB
