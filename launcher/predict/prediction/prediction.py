"""What a run of the built-in job takes on this host, before it starts: wall time and memory.

From its forecast, the costs of ``configs/estimates.yaml`` and a short measurement of the host. Pure, but for the file.
"""

from pathlib import Path

import msgspec

from launcher.predict.prediction.measured_host import MeasuredHost
from launcher.report.progress.estimate import Prediction
from sipsim.chips.api.forecast import JobForecast, SizeForecast
from sipsim.chips.api.run_plan.base import RunPlan
from sipsim.config.load.load import default_dir
from sipsim.config.yaml import read_mapping
from sipsim.records.job import Job

FILE = "estimates.yaml"
MIB = 2**20


class HostSpeed(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What :func:`launcher.predict.prediction.measured_host.measure` finds where the costs were measured."""

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
    """The prediction. ``in_process``: all SIPs are simulated in one process (``--engine inproc``)."""
    n_sips, times, machine = plan.system.n_sips, costs.times, host.machine
    speed = machine.event_us / costs.host.event_us
    at_a_time = machine.parallel if in_process else min(machine.parallel, n_sips)
    shared = n_sips * times.command_us_per_sip if in_process else times.command_us_per_sip
    per_element_s = n_sips * speed / 1e9 / at_a_time
    setup_ns = times.generated_ns + (times.summed_ns * n_sips if job.verify else 0)
    hashed = sum(size.nbytes for size in forecast.sizes) * times.hashed_ns
    window_us = times.window_us * speed if in_process else times.window_round_trips * machine.round_trip_us
    windows_per_us = n_sips * 1e6 / window_ps(plan)
    started_ms = n_sips * (times.sip_ms + (0 if in_process else times.process_ms)) * speed
    compared_ns = times.compared_ns if job.verify else 0
    replayed_us = times.replayed_us if job.verify else 0
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
    checked_mib = largest.nbytes / MIB * costs.check_copies if job.verify else 0.0
    messages = largest.counts.get("recv", 0) / n_sips
    rings_mib = costs.ring_MiB * min(messages / costs.ring_messages, 1.0)
    sip_mib = (costs.sip_MiB if in_process else costs.process_MiB) + data_mib + rings_mib
    if job.verify:
        sip_mib += costs.second_pass_copies * (kept_mib + rings_mib)
    if in_process:
        return host.loaded_MiB + n_sips * sip_mib + checked_mib
    return host.loaded_MiB + costs.others_MiB + n_sips * (sip_mib + checked_mib) + n_sips**2 * costs.pair_MiB
