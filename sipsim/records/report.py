"""What a rank used: its SIP by counters alone, which every run has, and the CPU time and memory of its process.

Use and launches of the SIP are plain data, part of a rank's outcome. CPU time and memory are for reports only; nothing
simulated depends on them.
"""

import time
from collections.abc import Iterable, Mapping
from itertools import groupby
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import msgspec

Ps = int
MOST_LAUNCHES = 10_000
"""Of which a rank keeps a record."""


class KernelUse(NamedTuple):
    """The time of the kernels of launches that have ended.

    ``kernels``: their number, ``kernel_ps`` how long they ran in all, ``launch_ps`` how long with the wait for the last
    one of each launch. ``waited_ps``: by the commands that they waited for.
    """

    kernels: int = 0
    kernel_ps: Ps = 0
    launch_ps: Ps = 0
    waited_ps: Mapping[str, Ps] = MappingProxyType({})

    def plus(self, other: "KernelUse") -> "KernelUse":
        """Both together."""
        return self._joined(other, 1)

    def since(self, before: "KernelUse") -> "KernelUse":
        """What has come after an earlier state."""
        return self._joined(before, -1)

    def _joined(self, other: "KernelUse", sign: int) -> "KernelUse":
        names = dict.fromkeys((*self.waited_ps, *other.waited_ps))
        return KernelUse(
            self.kernels + sign * other.kernels,
            self.kernel_ps + sign * other.kernel_ps,
            self.launch_ps + sign * other.launch_ps,
            {name: self.waited_ps.get(name, 0) + sign * other.waited_ps.get(name, 0) for name in names},
        )


class LaunchRecord(msgspec.Struct, frozen=True):
    """A launch that has ended. ``run``: the index of its collective among the SIP's, None for one of ``torch.launch``.

    ``start_ps`` and ``end_ps`` are those that the host sees, ``kernels_ps`` the start of the first kernel and the end
    of the last one, None without one. ``target_ps``: the start that IO_CPU has stamped, None where there is none;
    ``late_ps``: by how much the latest kernel missed it. ``pes``: see :func:`places_text`. ``busy_ps``: the time of all
    its kernels together, by the commands that they waited for.
    """

    name: str
    run: int | None
    start_ps: Ps
    end_ps: Ps
    kernels_ps: tuple[Ps, Ps] | None
    target_ps: Ps | None
    late_ps: Ps
    pes: str
    kernels: int
    busy_ps: dict[str, Ps]


def places_text(places: Iterable[tuple[int, int]]) -> str:
    """PEs of one SIP, as (cube, PE), in a few words: ``cubes 0-15, PE 0``, or cube by cube where these differ:
    ``cube 0: PE 0-3; cube 2: PE 1``.
    """
    by_cube = {
        cube: _ranges([pe for _, pe in some]) for cube, some in groupby(sorted(places), key=lambda place: place[0])
    }
    if not by_cube:
        return "none"
    if len(set(by_cube.values())) == 1:
        name = "cube" if len(by_cube) == 1 else "cubes"
        return f"{name} {_ranges(list(by_cube))}, PE {next(iter(by_cube.values()))}"
    return "; ".join(f"cube {cube}: PE {pes}" for cube, pes in by_cube.items())


def _ranges(numbers: list[int]) -> str:
    """Ascending numbers as ranges, ``0-3,7``."""
    found: list[list[int]] = []
    for number in numbers:
        if found and number == found[-1][1] + 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in found)


_SMAPS = Path("/proc/self/smaps_rollup")


def cpu_seconds() -> float:
    """User and system time of this process."""
    return time.process_time()


class PeakMemory:
    """The largest proportional share over all samples."""

    def __init__(self) -> None:
        self.mib = 0.0

    def sample(self) -> None:
        """Take a sample; costs about a millisecond."""
        self.mib = max(self.mib, pss_mib())


def pss_mib() -> float:
    """Proportional share of memory in MiB; 0 where the system does not report it.

    Read directly: the import of psutil would take longer than this in each SIP process, some 15 ms.
    """
    try:
        text = _SMAPS.read_text()
    except OSError:
        return 0.0
    kib = next((int(line.split()[1]) for line in text.splitlines() if line.startswith("Pss:")), 0)
    return kib / 1024


TL_WORDS = {
    "dma_read": "load",
    "dma_write": "store",
    "dma_read_block": "load",
    "dma_write_block": "store",
    **dict.fromkeys(("reduce", "cast", "rearrange", "make"), "math"),
    "pe_cpu.issue": "issue",
    "pe_scheduler.queue": "full queue",
}
"""What commands are called in ``tl``, where their spans and records have another name."""


class LinkUse(msgspec.Struct, frozen=True):
    """What left over a link: data, the same with all that links and queues add, and how long that kept the link busy.

    ``credit_bytes``: of frames without data, before framing. ``frames``: messages, and credits that are messages;
    through traffic counts on each link that it passes.
    """

    link: str
    frames: int
    payload_bytes: int
    credit_bytes: int
    wire_bytes: int
    busy_ps: int


class TlbUse(msgspec.Struct, frozen=True):
    """The lookups of a PE's TLB, one for each page that a command touched."""

    pe: str
    hits: int
    misses: int


class StackUse(msgspec.Struct, frozen=True):
    """The HBM of a cube through which most bytes went, all that its ports carried, and of how many PEs' slices."""

    cube: str
    nbytes: int
    slices: int


class EngineUse(msgspec.Struct, frozen=True):
    """The engines of the ``pes`` PEs that multiplied: how long each was busy, of all these PEs together, and for how
    long their kernels ran (``kernel_ps``), with or without a product.

    ``commands_ps``: the time of PE_GEMM's commands by what it went to (``sipsim.chips.ahbm.gemm.pipeline``).
    ``peak_ps``: the time of their multiplications if every cell of the arrays worked in every cycle.
    """

    pes: int
    kernel_ps: int
    busy_ps: dict[str, int]
    commands_ps: dict[str, int]
    peak_ps: int


class Usage(msgspec.Struct, frozen=True):
    """Of one SIP from ``since_ps`` to ``until_ps``, in which the work of a row was done ``iterations`` times; 0 for a
    whole run of which nothing is known.

    ``kernels``: how many ran, ``kernel_ps`` how long in all, and ``launch_ps`` how long with the wait for the last one
    of each launch. ``waited_ps``: by the commands that they waited for. ``edge``: the edge that was busy longest, links
    aside, for ``edge_busy_ps``. ``tlbs``: of the PEs that looked addresses up; none without PE_MMU.
    ``engines``: None where no PE multiplied. ``stack``: None where no HBM was used.
    """

    since_ps: int
    until_ps: int
    iterations: int
    kernels: int
    kernel_ps: int
    launch_ps: int
    waited_ps: dict[str, int]
    links: tuple[LinkUse, ...]
    edge: str
    edge_busy_ps: int
    tlbs: tuple[TlbUse, ...] = ()
    engines: EngineUse | None = None
    stack: StackUse | None = None
