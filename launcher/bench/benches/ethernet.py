"""Benches of Ethernet links without data movers: ``eth-bandwidth``, ``eth-ping``, ``ring-latency``."""

import argparse
import re
from collections.abc import Sequence
from typing import ClassVar

from launcher import flag_types
from launcher.bench.base import BENCHES, Bench, Case, Figure
from launcher.bench.machine import Machine

BANDWIDTH_SAMPLES = {"uni": 256, "bi": 1000}
"""The number of messages per direction in the published tests, by direction."""
STATISTIC = "per_direction"
BANDWIDTH_TEST = re.compile(r"test_erisc(?P<worker>_write_worker)?_bw_(?P<directions>uni|bi)_dir(?P<flush>_no_trid)?")
WORKER_SUFFIXES = {"none": ("", ""), "ids": ("_write_worker", ""), "flush": ("_write_worker", "_no_trid")}


class EthBandwidth(Bench[Case]):
    """Bench with rows ``per_direction``: payload in GB/s over a sender's loop, from first send to last freed buffer.

    The receiver is an Ethernet core or a worker.
    """

    about: ClassVar[str] = "bandwidth of one link, by size"
    sizes: ClassVar[tuple[int, ...]] = (16, 128, 256, 512, 1024, 2048, 4096, 8192)
    channels: ClassVar[tuple[int, ...]] = (16,)

    def add_flags(self, group: "argparse._ArgumentGroup") -> None:
        group.add_argument(
            "--directions", type=flag_types.names, default=("uni", "bi"), help="uni, bi or both (uni,bi)"
        )
        group.add_argument(
            "--worker",
            type=flag_types.names,
            default=("none", "ids", "flush"),
            help="none: payloads stay on the far Ethernet core; ids, flush: the core writes each payload to a worker, "
            "with transaction ids, or waiting for each write (none,ids,flush)",
        )

    def cases(self, chosen: argparse.Namespace) -> list[Case]:
        return [
            Case(f"test_erisc{before}_bw_{directions}_dir{behind}", channels, sizes=tuple(chosen.sizes))
            for before, behind in (WORKER_SUFFIXES[each] for each in chosen.worker)
            for directions in chosen.directions
            for channels in chosen.channels
        ]

    def measure(self, case: Case, machine: Machine) -> list[Figure]:
        found = BANDWIDTH_TEST.fullmatch(case.test)
        assert found is not None
        samples = machine.samples or BANDWIDTH_SAMPLES[found["directions"]]
        machine.check_room(2 if found["directions"] == "bi" else 1, max(case.sizes))
        results = machine.run_each(case.sizes, "eth_bandwidth", 2, {
            "channels": case.channels,
            "samples": samples,
            "is_bidirectional": found["directions"] == "bi",
            "worker": worker_mode(found),
        })  # fmt: skip
        figures = []
        for each in results:
            if each["rank"] == 0:
                value, fit = samples * each["nbytes"] / each["loop_ns"], each["channels"]
                note = f"only {fit} channels fit" if fit < case.channels else ""
                figures.append(Figure(case.test, each["nbytes"], "GB/s", STATISTIC, value, note))
        return figures


def worker_mode(found: "re.Match[str]") -> str:
    """Return the host script's argument ``worker`` for a match of a test's name."""
    if found["worker"] is None:
        return "none"
    return "flush" if found["flush"] else "ids"


BENCHES.register("eth-bandwidth")(EthBandwidth())


PING_SAMPLES = 4
PHASES = {
    "single_link_one_way": "one_way_midpoint",
    "single_link_round_trip": "round_trip",
    "eth_subsystem_plus_wire": "one_way_component",
    "initiate_send": "erisc_cost",
}
"""Statistic by test of a profiled ping."""
ROUND_TRIP = "single_link_round_trip"
IN_A_LOOP = "sender_main_loop_1_sample"
PING_LOOP = re.compile(r"test_erisc(?P<worker>_write_worker)?_latency_uni_dir(?P<flush>_no_trid)?")


class EthPing(Bench[Case]):
    """Bench with the phases of a profiled ping, and ``sender_main_loop_1_sample``: the sender's loop for one message,
    without profiling.

    As in the guide, the one-way time is (round trip - send) / 2. The time of subsystem and wire is (round trip - send -
    answer) / 2, minus the time of the bytes at the link's rate.
    """

    about: ClassVar[str] = "round-trip time of a packet over one link"
    sizes: ClassVar[tuple[int, ...]] = (16, 128, 512, 1024, 2048, 4096, 8192)
    channels: ClassVar[tuple[int, ...]] = (16,)

    def add_flags(self, group: "argparse._ArgumentGroup") -> None:
        group.add_argument(
            "--worker",
            type=flag_types.names,
            default=("none", "ids"),
            help="receiver in the loop, as in eth-bandwidth (none,ids)",
        )

    def cases(self, chosen: argparse.Namespace) -> list[Case]:
        ends = [WORKER_SUFFIXES[each] for each in chosen.worker]
        tests = [f"test_erisc{before}_latency_uni_dir{behind}" for before, behind in ends]
        sizes = tuple(chosen.sizes)
        loops = [Case(test, channels, sizes=sizes) for test in tests for channels in chosen.channels]
        return [Case(ROUND_TRIP, sizes=sizes), *loops]

    def measure(self, case: Case, machine: Machine) -> list[Figure]:
        found = PING_LOOP.fullmatch(case.test)
        machine.check_room(1, max(case.sizes))
        if found is None:
            return _phases(case.sizes, machine)
        results = machine.run_each(case.sizes, "eth_bandwidth", 2, {
            "channels": case.channels,
            "samples": 1,
            "is_bidirectional": False,
            "worker": worker_mode(found),
        })  # fmt: skip
        return [Figure(case.test, each["nbytes"], "ns", IN_A_LOOP, each["loop_ns"]) for each in results]


def _phases(sizes: Sequence[int], machine: Machine) -> list[Figure]:
    results = machine.run_each(sizes, "eth_ping", 2, {"samples": machine.samples or PING_SAMPLES})
    figures = []
    for nbytes in sizes:
        both = {name: ns for each in results if each["nbytes"] == nbytes for name, ns in each.items()}
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


RING_SAMPLES = 2
TESTS = {"ring_ping_no_edm": False, "ring_ping_no_edm_merged_sync": True}
"""Whether payload and flow control are sent in one command, by test."""
MOST_HOPS = 64


class RingLatency(Bench[Case]):
    """Bench with rows ``per_hop`` in ns and ``total_N_hops`` in us, with ``channels`` packets in flight."""

    about: ClassVar[str] = "time of a lap of packets around a ring of chips"
    sizes: ClassVar[tuple[int, ...]] = (16, 64, 256, 1024, 2048, 4096, 8192)
    channels: ClassVar[tuple[int, ...]] = (1,)

    def add_flags(self, group: "argparse._ArgumentGroup") -> None:
        hops = flag_types.list_of(flag_types.IntRange(2, MOST_HOPS))
        group.add_argument("--hops", type=hops, default=[8], metavar="N[,N...]", help="chips in the ring (8)")

    def cases(self, chosen: argparse.Namespace) -> list[Case]:
        sizes, counts = tuple(chosen.sizes), chosen.channels
        return [Case(test, n, hops, sizes) for test in TESTS for hops in chosen.hops for n in counts]

    def measure(self, case: Case, machine: Machine) -> list[Figure]:
        machine.check_room(case.channels, max(case.sizes))
        results = machine.run_each(case.sizes, "ring_latency", case.hops, {
            "channels": case.channels,
            "samples": machine.samples or RING_SAMPLES,
            "is_merged": TESTS[case.test],
        })  # fmt: skip
        figures = []
        for each in results:
            lap_ns = each["lap_ns"]
            figures.append(Figure(case.test, each["nbytes"], "ns", "per_hop", lap_ns / case.hops))
            figures.append(Figure(case.test, each["nbytes"], "us", f"total_{case.hops}_hops", lap_ns / 1000))
        return figures


BENCHES.register("ring-latency")(RingLatency())
