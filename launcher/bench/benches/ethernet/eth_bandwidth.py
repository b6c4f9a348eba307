"""``ahbm-bench eth-bandwidth``: bytes a second over one link, by size, to an Ethernet core or a worker."""

import argparse
import re
from typing import ClassVar

from launcher import flag_types
from launcher.bench.base import BENCHES, Bench, Case, Claim, Figure
from launcher.bench.machine import Machine, can_send
from launcher.bench.published import Published

BANDWIDTH_SAMPLES = {"uni": 256, "bi": 1000}
"""Messages a direction in the published tests, by directions."""
STATISTIC = "per_direction"
_TEST = re.compile(r"test_erisc(?P<worker>_write_worker)?_bw_(?P<directions>uni|bi)_dir(?P<flush>_no_trid)?")
WORKER_SUFFIXES = {"none": ("", ""), "ids": ("_write_worker", ""), "flush": ("_write_worker", "_no_trid")}


class EthBandwidth(Bench[Case]):
    """Rows ``per_direction``: GB/s of payload in the sender's loop, from the first send to the last free buffer."""

    about: ClassVar[str] = "bytes a second over one link, by size"
    families: ClassVar[tuple[str, ...]] = ("eth_link_bandwidth_no_edm",)
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
            help="none: payloads stay on the far Ethernet core; ids, flush: it writes them to a worker, with "
            "transaction ids or waiting for each (none,ids,flush)",
        )

    def cases(self, chosen: argparse.Namespace) -> list[Case]:
        return [
            Case(f"test_erisc{before}_bw_{directions}_dir{behind}", channels, sizes=tuple(chosen.sizes))
            for before, behind in (WORKER_SUFFIXES[each] for each in chosen.worker)
            for directions in chosen.directions
            for channels in chosen.channels
        ]

    def claim(self, row: Published) -> Claim | None:
        if _TEST.fullmatch(row.test) is None or row.statistic != STATISTIC:
            return None
        return claim_of_link(row, row.test)

    def measure(self, case: Case, machine: Machine) -> list[Figure]:
        found = _TEST.fullmatch(case.test)
        assert found is not None
        samples = machine.samples or BANDWIDTH_SAMPLES[found["directions"]]
        machine.check_room(2 if found["directions"] == "bi" else 1, max(case.sizes))
        told = machine.run_each(case.sizes, "eth_bandwidth", 2, {
            "channels": case.channels,
            "samples": samples,
            "is_bidirectional": found["directions"] == "bi",
            "worker": worker_mode(found),
        })  # fmt: skip
        figures = []
        for each in told:
            if each["rank"] == 0:
                value, fit = samples * each["nbytes"] / each["loop_ns"], each["channels"]
                note = f"{fit} channels, which fit" if fit < case.channels else ""
                figures.append(Figure(case.test, each["nbytes"], "GB/s", STATISTIC, value, note))
        return figures


def claim_of_link(row: Published, test: str) -> Claim | None:
    """The claim of a row of one link, to be measured as ``test``."""
    nbytes, channels = row.nbytes or 0, 1 if row.channels is None else row.channels
    if (row.hops or 1) != 1 or not can_send(nbytes, channels):
        return None
    return Claim(Case(test, channels, sizes=(nbytes,)), nbytes, row.statistic)


def worker_mode(found: "re.Match[str]") -> str:
    """The script's mode for a test's name."""
    if found["worker"] is None:
        return "none"
    return "flush" if found["flush"] else "ids"


BENCHES.register("eth-bandwidth")(EthBandwidth())
