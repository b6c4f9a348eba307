"""Flags of a machine on which launches take time, with numbers that sums by hand can tell apart.

The host's copies take none, so that launches begin at time 0.
"""

LAUNCH = {
    "host_latency_ns": 500,
    "bandwidth_GBps": 63,
    "cube_bytes": 64,
    "pe_bytes": 32,
    "done_bytes": 16,
    "entry_bytes": 24,
    "start_margin_ns": "null",
    "start_skew_ns": "{}",
    "max_start_skew_ns": 0,
    "start_skew_seed": 0,
}
IO_CPU = {"cube": 0, "overhead_ns": 5, "bandwidth_GBps": 32, "launch_ns": 300, "gather_ns": 20}
M_CPU = {"overhead_ns": 7, "bandwidth_GBps": 16, "dispatch_ns": 50, "gather_ns": 30, "dma_engines": 2}


def launch_settings(**changes: object) -> list[str]:
    """The values of ``--set`` for the path of a launch; ``changes`` are keys of ``launch``."""
    sections = {"launch": {**LAUNCH, **changes}, "io_cpu": IO_CPU, "m_cpu": M_CPU}
    settings = [
        f"{name}={{{', '.join(f'{key}: {of}' for key, of in keys.items())}}}" for name, keys in sections.items()
    ]
    return [*settings, "host_copies=free"]


def launch_flags(**changes: object) -> list[str]:
    """The same as flags."""
    return [word for setting in launch_settings(**changes) for word in ("--set", setting)]
