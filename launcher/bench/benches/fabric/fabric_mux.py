"""``ahbm-bench fabric-mux``: bytes a second that a mux passes on for several workers."""

import argparse
import re
from dataclasses import dataclass
from typing import ClassVar

from launcher import flag_types
from launcher.bench.base import BENCHES, Bench, Case, Claim, Figure
from launcher.bench.benches.fabric.fabric_bandwidth import MOST_PAYLOAD, NEW, OLD
from launcher.bench.machine import Machine
from launcher.bench.published import Published

MUX_PACKETS = 40
STATISTIC = "B/cycle at 1 GHz"
MOST_CHANNELS, MOST_SLOTS = 16, 64


@dataclass(frozen=True)
class MuxCase(Case):
    """``channels`` for whole packets, ``headers`` for packets without payload, ``slots`` of each."""

    headers: int = 0
    slots: int = 8
    revision: str = NEW


class FabricMux(Bench[MuxCase]):
    """Rows ``B/cycle at 1 GHz`` in GB/s: payload that all clients have sent, over the time until it has come."""

    about: ClassVar[str] = "bytes a second that a mux in front of a router passes on"
    families: ClassVar[tuple[str, ...]] = ("fabric_mux",)
    sizes: ClassVar[tuple[int, ...]] = (4096,)
    channels: ClassVar[tuple[int, ...]] = (1, 4, 8)

    def add_flags(self, group: "argparse._ArgumentGroup") -> None:
        group.add_argument("--headers", type=flag_types.IntRange(0, MOST_CHANNELS), default=0, metavar="N",
                           help="channels for packets without payload (0)")  # fmt: skip
        group.add_argument(
            "--slots", type=flag_types.IntRange(1, MOST_SLOTS), default=8, metavar="N", help="a channel (8)"
        )

    def check(self, chosen: argparse.Namespace, machine: Machine) -> None:
        machine.check_fabric(NEW, chosen.sizes)

    def cases(self, chosen: argparse.Namespace) -> list[MuxCase]:
        return [MuxCase("mux", channels, 0, (nbytes,), chosen.headers, chosen.slots)
                for channels in chosen.channels for nbytes in chosen.sizes]  # fmt: skip

    def claim(self, row: Published) -> Claim | None:
        found = re.fullmatch(r"(\d+) full-size \+ (\d+) header-only channels, (\d+) buffers/channel", row.note)
        if found is None or row.metric != "GB/s" or row.nbytes is None or not 16 <= row.nbytes <= MOST_PAYLOAD:
            return None
        full, headers, slots = map(int, found.groups())
        is_plain = row.statistic == STATISTIC and (row.message.lower() or "noc_unicast_write") == "noc_unicast_write"
        if not is_plain or row.devices not in ("", "2") or row.links not in (None, 1) or (row.hops or 0) > 1:
            return None
        if row.channels not in (None, full, full + headers):
            return None
        if not 1 <= full <= full + headers <= MOST_CHANNELS or not 1 <= slots <= MOST_SLOTS:
            return None
        return Claim(MuxCase(row.test, full, 0, (row.nbytes,), headers, slots, OLD), row.nbytes, row.statistic)

    def measure(self, case: MuxCase, machine: Machine) -> list[Figure]:
        (nbytes,), ended_ns = case.sizes, []
        for packets in (MUX_PACKETS, 2 * MUX_PACKETS):
            asked = {"full": case.channels, "headers": case.headers, "slots": case.slots, "nbytes": nbytes,
                     "packets": packets, "revision": case.revision}  # fmt: skip
            told = machine.run("fabric_mux", 2, asked, topology="tt_line" if machine.chip == "wormhole" else "ring_1d")
            ended_ns.append(told[0]["ended_ns"])
        value = case.channels * MUX_PACKETS * nbytes / (ended_ns[1] - ended_ns[0])
        return [Figure(case.test, nbytes, "GB/s", STATISTIC, value)]


BENCHES.register("fabric-mux")(FabricMux())
