"""Bench ``ccl``: time of a collective operation on the fabric, from the first start to the last end of its kernels.

The published time of one all-reduce is the time of its reduce-scatter plus the time of its all-gather. So the bench
starts both operations separately, and adds the times of the slowest chips. Back-to-back calls start without a pause.

Times of long messages are extrapolated. Once a schedule is periodic, each further round takes the same time. So two
sizes of whole rounds are simulated, and further bytes take the time per byte between these two sizes.
"""

import argparse
from dataclasses import dataclass, replace
from typing import ClassVar

from launcher import flag_types
from launcher.bench.base import BENCHES, Bench, Case, Figure
from launcher.bench.machine import KIB, Machine
from sipsim.core.errors import ConfigError

OPERATIONS = ("all_gather", "reduce_scatter", "all_reduce", "all_to_all")
CALLS = {"kernel_time": 1, "kernel_time_back_to_back": 8}
"""Number of calls by statistic."""
LEAST_CHIPS = {"line": 2, "ring": 3}
MOST_CHIPS, MOST_LINKS, MOST_BYTES = 32, 4, 2**40
TOTALS = (64 * KIB, 1024 * KIB)
PAGE_BYTES = 2 * KIB
"""Size in bytes of a tile of 32 x 32 elements of bf16."""
MOST_PLAIN_BYTES = 1024 * KIB
"""The largest size in bytes that is simulated without extrapolation, unless the periodic runs are longer."""
LEAST_ROUNDS = {"line": 40, "ring": 48}
MOST_ROUNDS = 320
"""Least packets per link in the shorter periodic run: ``LEAST_ROUNDS`` per slice and, on a line, ``MOST_ROUNDS`` in all
slices. Both are whole chunks, and more than a relay has in flight. The longer run has twice as many packets.
"""
CALL_BYTES = 128 * KIB
"""Bytes of data whose simulation takes as long as the simulation of an empty call with its barrier."""
HALF_RATE_LINK = {"blackhole": "tenstorrent_200g"}
"""Link preset for the published collectives on Blackhole, whose links ran at 25 GB/s (341 ns for 8192 B)."""


@dataclass(frozen=True)
class CclCase(Case):
    """Case of ``ccl``. ``sizes``: bytes of the undivided tensor. ``calls``: number of back-to-back calls."""

    topology: str = "line"
    chips: int = 2
    links: int = 1
    packet_bytes: int = 6144
    calls: int = 1

    def problem(self) -> str:
        """Return why the case is invalid; empty if the case is valid."""
        if self.test not in OPERATIONS or self.topology not in LEAST_CHIPS:
            return f"{self.test} on a {self.topology}: give --op {','.join(OPERATIONS)} and --topologies line,ring"
        if not LEAST_CHIPS[self.topology] <= self.chips <= MOST_CHIPS or not 1 <= self.links <= MOST_LINKS:
            return f"--chips {self.chips}: a {self.topology} has {LEAST_CHIPS[self.topology]} to {MOST_CHIPS} chips"
        unit = PAGE_BYTES * self.chips
        invalid = [each for each in self.sizes if not 0 < each <= MOST_BYTES or each % unit]
        what = f"whole pages of {PAGE_BYTES} B on each of {self.chips} chips, and at most {MOST_BYTES} B in all"
        return f"{invalid[0]} B: give {what}" if invalid else ""

    @property
    def farthest(self) -> int:
        """The number of hops to the farthest chip."""
        return self.chips // 2 if self.topology == "ring" else self.chips - 1

    @property
    def steady(self) -> tuple[int, int]:
        """The sizes in bytes of the two periodic runs from which times of longer sizes are extrapolated."""
        unit, least = self.chips * self.links * self.packet_bytes, LEAST_ROUNDS[self.topology]
        if self.topology == "line":
            least = max(least, MOST_ROUNDS // self.chips)
        return least * unit, 2 * least * unit

    @property
    def most_plain(self) -> int:
        """The largest size that is simulated without extrapolation, in bytes."""
        return max(MOST_PLAIN_BYTES, self.steady[1])


class Ccl(Bench[CclCase]):
    """Bench with rows ``kernel_time`` and ``kernel_time_back_to_back``, in us per call."""

    case_type: ClassVar[type[Case]] = CclCase
    about: ClassVar[str] = "time of a collective operation on the fabric"

    def add_flags(self, group: "argparse._ArgumentGroup") -> None:
        group.add_argument("--op", type=flag_types.names, default=OPERATIONS, help="operations (all)")
        group.add_argument("--topologies", type=flag_types.names, default=("line",), help="line, ring (line)")
        chips = flag_types.list_of(flag_types.IntRange(2, MOST_CHIPS))
        group.add_argument("--chips", type=chips, default=[4], metavar="N[,N...]", help="number of chips (4)")
        links = flag_types.IntRange(1, MOST_LINKS)
        group.add_argument("--links", type=links, default=1, metavar="N", help="links between neighbours (1)")
        group.add_argument("--total", type=flag_types.list_of(flag_types.size), default=TOTALS, metavar="BYTES[,...]",
                           help=f"size of the whole tensor ({','.join(map(str, TOTALS))})")  # fmt: skip
        calls = flag_types.IntRange(1, 64)
        group.add_argument("--calls", type=calls, default=1, metavar="N", help="number of back-to-back calls (1)")

    def cases(self, chosen: argparse.Namespace) -> list[CclCase]:
        cases = [
            CclCase(op, sizes=tuple(chosen.total), topology=topology, chips=n, links=chosen.links, calls=chosen.calls)
            for op in chosen.op
            for topology in chosen.topologies
            for n in chosen.chips
        ]
        for case in cases:
            if case.problem():
                raise ConfigError(case.problem())
        return cases

    def effort(self, case: CclCase) -> float:
        """Return the simulated bytes of all chips, where each call adds ``CALL_BYTES``."""
        plain = {nbytes for nbytes in case.sizes if nbytes <= case.most_plain}
        steady = case.steady if len(plain) < len(case.sizes) else ()
        calls = case.calls + 1 if case.calls > 1 else 1
        return float(sum(nbytes + CALL_BYTES for nbytes in (*plain, *steady)) * case.chips * calls)

    def measure(self, case: CclCase, machine: Machine) -> list[Figure]:
        statistic = "kernel_time" if case.calls == 1 else "kernel_time_back_to_back"
        known: dict[tuple[int, int, bool], float] = {}
        figures = []
        for nbytes in case.sizes:
            last_ns = _kernel_ns(case, machine, nbytes, case.calls, known)
            if case.calls > 1:
                last_ns = (last_ns - _kernel_ns(case, machine, nbytes, 1, known)) / (case.calls - 1)
            figures.append(Figure(case.test, nbytes, "us", statistic, last_ns / 1000))
        return figures


def _kernel_ns(
    case: CclCase, machine: Machine, nbytes: int, calls: int, known: dict[tuple[int, int, bool], float]
) -> float:
    """Return the time of ``calls`` calls in ns. ``known``: times of earlier runs, by size, calls and ``is_steady``."""
    short, long = case.steady
    if nbytes <= case.most_plain:
        return _plain_ns(case, machine, nbytes, calls, False, known)
    first_ns = _plain_ns(case, machine, short, calls, True, known)
    second_ns = _plain_ns(case, machine, long, calls, True, known)
    return second_ns + (nbytes - long) * (second_ns - first_ns) / (long - short)


def _plain_ns(
    case: CclCase, machine: Machine, nbytes: int, calls: int, is_steady: bool, known: dict[tuple[int, int, bool], float]
) -> float:
    key = nbytes, calls, is_steady
    if key not in known:
        known[key] = run_ns(case, machine, nbytes, calls, is_steady)
    return known[key]


def run_ns(case: CclCase, machine: Machine, nbytes: int, calls: int = 1, is_steady: bool = False) -> float:
    """Return the time in ns of the slowest chip for one size. ``is_steady``: use the chunk size of long messages."""
    options = {}
    if is_steady and case.test != "all_to_all":
        options["chunks_per_sync"] = machine.params.ccl.chunks_per_sync(case.topology == "ring")
    chips = replace(machine, link=machine.link or HALF_RATE_LINK.get(machine.chip))
    settings = f"system.sips.num_links={case.links}", f"system.chip_params.ccl.packet_bytes={case.packet_bytes}"
    results = chips.with_first(*settings).run(
        "ccl",
        case.chips,
        {
            "op": case.test,
            "topology": case.topology,
            "links": case.links,
            "packet_bytes": case.packet_bytes,
            "sizes": [nbytes],
            "calls": calls,
            "is_split": case.calls == 1,
            "options": options,
        },
        topology=f"tt_{case.topology}",
    )
    return float(sum(max(steps) for steps in zip(*(each["kernels_ns"] for each in results), strict=True)))


BENCHES.register("ccl")(Ccl())
