"""``ahbm-bench ring-latency``: the time of packets once around a ring of chips, without the data mover."""

import argparse
from typing import ClassVar

from launcher import flag_types
from launcher.bench.base import BENCHES, Bench, Case, Claim, Figure
from launcher.bench.machine import Machine, can_send
from launcher.bench.published import Published

RING_SAMPLES = 2
TESTS = {"ring_ping_no_edm": False, "ring_ping_no_edm_merged_sync": True}
"""Whether payload and flow control are one command."""
MOST_HOPS = 64


class RingLatency(Bench[Case]):
    """Rows ``per_hop`` in ns and ``total_N_hops`` in us, with ``channels`` packets at once."""

    about: ClassVar[str] = "the time of packets once around a ring of chips"
    families: ClassVar[tuple[str, ...]] = ("seed_ubench",)
    sizes: ClassVar[tuple[int, ...]] = (16, 64, 256, 1024, 2048, 4096, 8192)
    channels: ClassVar[tuple[int, ...]] = (1,)

    def add_flags(self, group: "argparse._ArgumentGroup") -> None:
        hops = flag_types.list_of(flag_types.IntRange(2, MOST_HOPS))
        group.add_argument("--hops", type=hops, default=[8], metavar="N[,N...]", help="chips in the ring (8)")

    def cases(self, chosen: argparse.Namespace) -> list[Case]:
        sizes, counts = tuple(chosen.sizes), chosen.channels
        return [Case(test, n, hops, sizes) for test in TESTS for hops in chosen.hops for n in counts]

    def claim(self, row: Published) -> Claim | None:
        hops, nbytes = row.hops or 1, row.nbytes or 0
        channels = 1 if row.channels is None else row.channels
        if row.test not in TESTS or not 2 <= hops <= MOST_HOPS or not can_send(nbytes, channels):
            return None
        if row.statistic not in ("per_hop", f"total_{hops}_hops"):
            return None
        return Claim(Case(row.test, channels, hops, (nbytes,)), nbytes, row.statistic)

    def measure(self, case: Case, machine: Machine) -> list[Figure]:
        machine.check_room(case.channels, max(case.sizes))
        told = machine.run_each(case.sizes, "ring_latency", case.hops, {
            "channels": case.channels,
            "samples": machine.samples or RING_SAMPLES,
            "is_merged": TESTS[case.test],
        })  # fmt: skip
        figures = []
        for each in told:
            lap_ns = each["lap_ns"]
            figures.append(Figure(case.test, each["nbytes"], "ns", "per_hop", lap_ns / case.hops))
            figures.append(Figure(case.test, each["nbytes"], "us", f"total_{case.hops}_hops", lap_ns / 1000))
        return figures


BENCHES.register("ring-latency")(RingLatency())
