"""``ahbm-bench fabric-latency``: the time of one packet at a time over a fabric that nothing else uses."""

import argparse
from dataclasses import dataclass
from typing import Any, ClassVar

from launcher import flag_types
from launcher.bench.base import BENCHES, Bench, Case, Claim, Figure
from launcher.bench.benches.fabric.fabric_bandwidth import (
    COMMANDS,
    MOST_CHIPS,
    MOST_PAYLOAD,
    NEW,
    OLD,
    links_of,
    newest,
    whole,
)
from launcher.bench.machine import Machine
from launcher.bench.published import Published
from sipsim.chips.tensix.fabric.fabric.places import ROLES
from sipsim.core.errors import ConfigError

SAMPLES = 16
ONE_LINE, ONE_RING = (f"test_1D_{each}_fabric_latency_on_uncongested_fabric" for each in ("line", "ring"))
NET = {"LatencyLinearUnicast": "line", "LatencyRingUnicast": "ring", "LatencyMeshUnicast": "mesh"}
TOPOLOGIES = ("line", "ring", "mesh")
HALF_RATE_GALAXY = 32
"""Chips of a Galaxy, whose Blackhole links run at half their rate (TT0689)."""
SLOPE, SLOPE_BYTES, SLOPE_CHIPS = "round_trip_slope", 16, 8
NET_STATISTIC = "net_avg_round_trip_1_hop_each_way"
LEAST_CHIPS = {"line": 2, "ring": 3, "mesh": 4}


@dataclass(frozen=True)
class LatencyCase(Case):
    """``chips`` of a ``topology``; ``hops`` there. ``is_circuit``: the packet goes once around the ring."""

    topology: str = "line"
    chips: int = 2
    is_circuit: bool = False
    revision: str = NEW
    command: str = "write"
    is_half_rate: bool = False

    def flows(self) -> dict[str, Any]:
        """Sender, receiver and routes."""
        if self.is_circuit:
            return {"sender": 0, "receiver": 0, "there": {"way": "E", "start": self.chips, "number": 1}}
        if self.topology == "mesh":
            flows = ({"ways": way * self.hops, "writes": "0" * (self.hops - 1) + "1"} for way in "EW")
            return {"sender": 0, "receiver": self.hops, **dict(zip(("there", "back"), flows, strict=True))}
        there, back = ({"way": way, "start": self.hops, "number": 1} for way in "EW")
        return {"sender": 0, "receiver": self.hops, "there": there, "back": back}


class FabricLatency(Bench[LatencyCase]):
    """Rows in ns: ``mean_round_trip`` and ``per_hop`` of it; ``net_avg_round_trip_1_hop_each_way`` without the
    receiver's own
    time; ``slope_per_hop`` of round trips over 1 and more hops.
    """

    about: ClassVar[str] = "the time of one packet at a time over a fabric of data movers"
    families: ClassVar[tuple[str, ...]] = ("fabric_1d_latency", "fabric_latency_summary", "per_hop_forwarding_slope")
    sizes: ClassVar[tuple[int, ...]] = (16, 1024, 4096)

    def add_flags(self, group: "argparse._ArgumentGroup") -> None:
        group.add_argument("--fabric", choices=TOPOLOGIES, default="line", help="(line)")
        group.add_argument("--chips", type=flag_types.IntRange(2, MOST_CHIPS), default=8, metavar="N", help="(8)")
        group.add_argument("--hops", type=flag_types.IntRange(1, MOST_CHIPS), default=1, metavar="N", help="there (1)")
        group.add_argument("--command", choices=("write", "fused"), default="write", help="(write)")
        group.add_argument("--revision", default=NEW, metavar="NAME", help=f"of the fabric's protocol ({NEW})")

    def check(self, chosen: argparse.Namespace, machine: Machine) -> None:
        machine.check_fabric(chosen.revision, chosen.sizes)

    def cases(self, chosen: argparse.Namespace) -> list[LatencyCase]:
        if chosen.hops >= chosen.chips:
            raise ConfigError(f"--hops {chosen.hops}: {chosen.chips} chips are {chosen.chips - 1} hops long, at most")
        return [
            LatencyCase(
                f"{chosen.fabric}_latency",
                hops=chosen.hops,
                sizes=(nbytes,),
                topology=chosen.fabric,
                chips=chosen.chips,
                revision=chosen.revision,
                command=chosen.command,
            )
            for nbytes in chosen.sizes
        ]

    def claim(self, row: Published) -> Claim | None:
        is_one = links_of(row) == 1 and row.channels in (None, 1)
        if row.metric != "ns" or not is_one or (row.nbytes or 0) > MOST_PAYLOAD:
            return None
        find = _slope if row.test == SLOPE else _around if row.test in (ONE_LINE, ONE_RING) else _one_hop
        case = find(row, whole(row.devices))
        return None if case is None else Claim(case, case.sizes[0], row.statistic)

    def measure(self, case: LatencyCase, machine: Machine) -> list[Figure]:
        (nbytes,) = case.sizes
        if case.is_half_rate:
            machine = machine.with_first(f"links.{machine.link_name}.params.bandwidth_GBps=25")
        if case.test == SLOPE:
            near, far = (self._told(case, machine, hops, nbytes)["gross"] for hops in (1, case.hops))
            return [Figure(case.test, nbytes, "ns", "slope_per_hop", (far - near) / (case.hops - 1) / 2)]
        told = self._told(case, machine, case.hops, nbytes)
        hops = case.chips if case.is_circuit else 2 * case.hops
        values = {"mean_round_trip": told["gross"], "per_hop": told["gross"] / hops,
                  NET_STATISTIC: told["net"]}  # fmt: skip
        return [Figure(case.test, nbytes, "ns", statistic, value) for statistic, value in values.items()]

    def _told(self, case: LatencyCase, machine: Machine, hops: int, nbytes: int) -> dict[str, float]:
        rows = 2 if case.topology == "mesh" else 1
        fabric = {
            "topology": case.topology,
            "revision": case.revision,
            "columns": case.chips // rows if rows > 1 else 0,
            "spare_slots": () if case.is_circuit else ROLES,
        }
        asked = {"fabric": fabric, "nbytes": nbytes, "samples": SAMPLES, "command": case.command}
        asked |= LatencyCase(**{**case.__dict__, "hops": hops}).flows()
        sips = "mesh_2d_no_wrap" if rows > 1 else "ring_1d"
        if rows > 1:
            machine = machine.with_first(f"system.sips.shape=[{case.chips // rows},{rows}]")
        told = machine.run("fabric_latency", case.chips, asked, topology=sips)
        gross = next(each["mean_ns"] for each in told if each["sender"])
        return {"gross": gross, "net": gross - sum(each["mean_ns"] for each in told if not each["sender"])}


def _slope(row: Published, chips: int) -> LatencyCase | None:
    chips, nbytes = chips if row.devices else SLOPE_CHIPS, SLOPE_BYTES if row.nbytes is None else row.nbytes
    is_mesh = row.topology == "mesh"
    hops = chips // 2 - 1 if is_mesh else chips - 1
    is_claimed = row.statistic == "slope_per_hop" and row.topology in TOPOLOGIES and row.hops in (None, 1)
    if not is_claimed or row.message or hops < 2 or chips > MOST_CHIPS or (is_mesh and chips % 2):
        return None
    return LatencyCase(row.test, hops=hops, sizes=(nbytes,), topology=row.topology, chips=chips, revision=newest(row))


def _around(row: Published, chips: int) -> LatencyCase | None:
    """To the far end of a line and back, or once around a ring."""
    topology = "ring" if row.test == ONE_RING else "line"
    hops = {"mean_round_trip": chips if topology == "ring" else 2 * (chips - 1), "per_hop": 1}.get(row.statistic)
    if hops is None or row.hops not in (None, hops) or row.topology not in ("", topology) or row.nbytes is None:
        return None
    if not LEAST_CHIPS[topology] <= chips <= MOST_CHIPS:
        return None
    return LatencyCase(row.test, hops=chips - 1, sizes=(row.nbytes,), topology=topology, chips=chips,
                       is_circuit=topology == "ring", revision=OLD)  # fmt: skip


def _one_hop(row: Published, chips: int) -> LatencyCase | None:
    """There and back over one hop: it is the same between any two neighbours."""
    command, topology = COMMANDS.get(row.message.lower()), NET.get(row.test)
    if topology is None or row.topology not in ("", topology) or command not in ("write", "fused"):
        return None
    if row.statistic != NET_STATISTIC or row.hops not in (None, 2) or row.nbytes is None:
        return None
    if not LEAST_CHIPS[topology] <= chips <= MOST_CHIPS:
        return None
    is_half_rate = row.architecture == "blackhole" and chips == HALF_RATE_GALAXY
    return LatencyCase(row.test, sizes=(row.nbytes,), topology=topology, chips=4, revision=newest(row),
                       command=command, is_half_rate=is_half_rate)  # fmt: skip


BENCHES.register("fabric-latency")(FabricLatency())
