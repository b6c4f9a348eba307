"""``ahbm-bench ring-latency``: the time of packets once around a ring of chips, without the data mover."""

import argparse
from collections.abc import Sequence
from typing import ClassVar

from launcher.bench.base import BENCHES, Bench, Case, Figure
from launcher.bench.machine import Machine
from launcher.run import arguments

SAMPLES = 2
TESTS = {"ring_ping_no_edm": False, "ring_ping_no_edm_merged_sync": True}
"""Whether payload and flow control are one command."""
MOST_HOPS = 64


class RingLatency(Bench):
    """Rows ``per_hop`` in ns and ``total_N_hops`` in us, with ``channels`` packets at once."""

    about: ClassVar[str] = "the time of packets once around a ring of chips"
    families: ClassVar[tuple[str, ...]] = ("seed_ubench",)
    sizes: ClassVar[tuple[int, ...]] = (16, 64, 256, 1024, 2048, 4096, 8192)
    channels: ClassVar[tuple[int, ...]] = (1,)

    def add_flags(self, group: "argparse._ArgumentGroup") -> None:
        hops = arguments.list_of(arguments.IntRange(2, MOST_HOPS))
        group.add_argument("--hops", type=hops, default=[8], metavar="N[,N...]", help="chips in the ring (8)")

    def cases(self, chosen: argparse.Namespace) -> list[Case]:
        return [Case(test, channels, hops) for test in TESTS for hops in chosen.hops for channels in chosen.channels]

    def knows(self, test: str) -> bool:
        return test in TESTS

    def measure(self, case: Case, sizes: Sequence[int], machine: Machine) -> list[Figure]:
        machine.check_room(case.channels, max(sizes))
        told = machine.run("ring_latency", case.hops, {
            "sizes": list(sizes),
            "channels": case.channels,
            "samples": machine.samples or SAMPLES,
            "is_merged": TESTS[case.test],
        })  # fmt: skip
        figures = []
        for each in told:
            lap_ns = each["lap_ns"]
            figures.append(Figure(case, each["nbytes"], "ns", "per_hop", lap_ns / case.hops))
            figures.append(Figure(case, each["nbytes"], "us", f"total_{case.hops}_hops", lap_ns / 1000))
        return figures


BENCHES.register("ring-latency")(RingLatency())
