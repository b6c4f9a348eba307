"""``ahbm-bench eth-ping``: the time of a packet over one link and of its answer, phase by phase, and in a loop."""

import argparse
import re
from collections.abc import Sequence
from typing import ClassVar

from launcher import flag_types
from launcher.bench.base import BENCHES, Bench, Case, Claim, Figure
from launcher.bench.benches.ethernet.eth_bandwidth import WORKER_SUFFIXES, claim_of_link, worker_mode
from launcher.bench.machine import Machine
from launcher.bench.published import Published

PING_SAMPLES = 4
PHASES = {
    "single_link_one_way": "one_way_midpoint",
    "single_link_round_trip": "round_trip",
    "eth_subsystem_plus_wire": "one_way_component",
    "initiate_send": "erisc_cost",
}
"""Tests of one profiled ping, and the statistic of each."""
ROUND_TRIP = "single_link_round_trip"
IN_A_LOOP = "sender_main_loop_1_sample"
_LOOP = re.compile(r"test_erisc(?P<worker>_write_worker)?_latency_uni_dir(?P<flush>_no_trid)?")


class EthPing(Bench[Case]):
    """The phases of a profiled ping, and ``sender_main_loop_1_sample``: the sender's loop for one message, unprofiled.

    As the guide has them, one way is the round trip without the sending, halved; subsystem and wire are that without
    the answer's sending and the bytes at the link's rate.
    """

    about: ClassVar[str] = "the time of a packet over one link and of its answer"
    families: ClassVar[tuple[str, ...]] = ("eth_link_latency_no_edm", "seed_ubench")
    sizes: ClassVar[tuple[int, ...]] = (16, 128, 512, 1024, 2048, 4096, 8192)
    channels: ClassVar[tuple[int, ...]] = (16,)

    def add_flags(self, group: "argparse._ArgumentGroup") -> None:
        group.add_argument(
            "--worker",
            type=flag_types.names,
            default=("none", "ids"),
            help="in the loop: as of eth-bandwidth (none,ids)",
        )

    def cases(self, chosen: argparse.Namespace) -> list[Case]:
        ends = [WORKER_SUFFIXES[each] for each in chosen.worker]
        tests = [f"test_erisc{before}_latency_uni_dir{behind}" for before, behind in ends]
        sizes = tuple(chosen.sizes)
        loops = [Case(test, channels, sizes=sizes) for test in tests for channels in chosen.channels]
        return [Case(ROUND_TRIP, sizes=sizes), *loops]

    def claim(self, row: Published) -> Claim | None:
        if PHASES.get(row.test) == row.statistic:
            return claim_of_link(row, ROUND_TRIP) if row.channels in (None, 1) else None
        is_loop = _LOOP.fullmatch(row.test) is not None and row.statistic == IN_A_LOOP
        return claim_of_link(row, row.test) if is_loop else None

    def measure(self, case: Case, machine: Machine) -> list[Figure]:
        found = _LOOP.fullmatch(case.test)
        machine.check_room(1, max(case.sizes))
        if found is None:
            return _phases(case.sizes, machine)
        told = machine.run_each(case.sizes, "eth_bandwidth", 2, {
            "channels": case.channels,
            "samples": 1,
            "is_bidirectional": False,
            "worker": worker_mode(found),
        })  # fmt: skip
        return [Figure(case.test, each["nbytes"], "ns", IN_A_LOOP, each["loop_ns"]) for each in told]


def _phases(sizes: Sequence[int], machine: Machine) -> list[Figure]:
    told = machine.run_each(sizes, "eth_ping", 2, {"samples": machine.samples or PING_SAMPLES})
    figures = []
    for nbytes in sizes:
        both = {name: ns for each in told if each["nbytes"] == nbytes for name, ns in each.items()}
        round_ns, send_ns, answer_ns, bytes_ns = (both[f"{name}_ns"] for name in ("round", "send", "answer", "bytes"))
        values = {
            "single_link_one_way": (round_ns - send_ns) / 2,
            "single_link_round_trip": round_ns,
            "eth_subsystem_plus_wire": (round_ns - send_ns - answer_ns) / 2 - bytes_ns,
            "initiate_send": send_ns,
        }
        figures += [Figure(test, nbytes, "ns", PHASES[test], ns) for test, ns in values.items()]
    return figures


BENCHES.register("eth-ping")(EthPing())
