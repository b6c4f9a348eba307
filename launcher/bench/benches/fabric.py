"""Benches of fabrics of data movers: ``fabric-bandwidth``, ``fabric-latency`` and ``fabric-mux`` of ``ahbm-bench``."""

import argparse
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from launcher import flag_types
from launcher.bench.base import BENCHES, Bench, Case, Figure
from launcher.bench.machine import Machine
from sipsim.chips.tensix.fabric.fabric import ROLES
from sipsim.core.errors import ConfigError

Flow = dict[str, Any]
"""``way``, ``start``, ``number`` and ``link`` on a line or ring, ``ways`` and ``writes`` on a mesh."""
Workers = list[list[Flow]]
"""The flows of each worker of a chip, as host script ``fabric_traffic`` takes them."""


class Line(NamedTuple):
    """How chips in a line or ring of ``chips`` send. ``is_multicast``: to all chips up to the last, else to that alone.
    ``ends_only``: interior chips send nothing. ``forward_only``: the first chip's way alone. ``halves``: the first half
    of the chips send forward, the other backward. ``links``: side by side, each with a worker that serves both ways by
    turns.
    """

    chips: int
    is_multicast: bool
    ends_only: bool = False
    forward_only: bool = False
    halves: bool = False
    links: int = 1


def on_line(line: Line) -> list[Workers]:
    """Every chip to all chips before it and behind it."""
    last = line.chips - 1

    def reach(position: int) -> tuple[int, int]:
        may = not line.ends_only or position in ((0,) if line.forward_only else (0, last))
        is_first = position < line.chips // 2
        forward = may and (is_first or not line.halves)
        backward = may and not line.forward_only and not (is_first and line.halves)
        return (last - position if forward else 0), (position if backward else 0)

    return _each_chip(line, reach)


def on_ring(line: Line, forward: int, backward: int, by_turns: bool = False) -> list[Workers]:
    """Every chip to so many chips each way. ``by_turns``: of chips with an even position the other way round."""
    return _each_chip(
        line, lambda position: (backward, forward) if by_turns and position % 2 == 0 else (forward, backward)
    )


def through_one_link(line: Line) -> list[Workers]:
    """On a ring of 4: the link between chips 1 and 2 has, each way, packets of chips 1, 2 and 3 hops before its end, so
    that all sender channels of its routers are in use.
    """

    def reach(position: int) -> tuple[int, int]:
        last = line.chips - 1
        forward = line.chips if position == last else max(last - position, 0)
        backward = line.chips if position == 0 else position
        return (forward if forward > 1 else 0), (backward if backward > 1 else 0)

    return _each_chip(line, reach)


def from_one(chips: int, at: int = 0) -> list[Workers]:
    """One worker of one chip to every other chip by turns."""
    flows = [_flow("E" if to > at else "W", abs(to - at), 1, 0) for to in range(chips) if to != at]
    return [[flows] if position == at else [] for position in range(chips)]


def from_one_on_mesh(rows: int, columns: int) -> list[Workers]:
    """One worker of the first chip to every other chip by turns."""
    flows = [_over(column, row) for row in range(rows) for column in range(columns) if row or column]
    return [[flows], *([] for _ in range(rows * columns - 1))]


def all_on_mesh(rows: int, columns: int) -> list[Workers]:
    """A worker of every chip to all others by multicast: along its own row, and over its column along each other row.

    Routers fork straight on and here alone, so a packet goes each way of each row.
    """
    found: list[Workers] = []
    for row in range(rows):
        for column in range(columns):
            flows: list[Flow] = []
            for to in range(rows):
                down = ("S" if to > row else "N") * abs(to - row)
                if down:
                    flows.append({"ways": down, "writes": "0" * (len(down) - 1) + "1"})
                flows += [
                    {"ways": down + along, "writes": "0" * len(down) + "1" * len(along)}
                    for along in ("E" * (columns - 1 - column), "W" * column)
                    if along
                ]
            found.append([flows])
    return found


def busiest(traffic: list[Workers], columns: int = 0) -> int:
    """Flows over the link that has most, one way."""
    size = len(traffic)
    counted: Counter[tuple[object, ...]] = Counter()
    for position, workers in enumerate(traffic):
        for flow in (flow for flows in workers for flow in flows):
            counted.update(_links_of(flow, position, size, columns or size))
    return max(counted.values())


def _links_of(flow: Flow, position: int, size: int, columns: int) -> list[tuple[object, ...]]:
    if "way" in flow:
        sign = 1 if flow["way"] == "E" else -1
        last = flow["start"] + flow["number"] - 1
        return [((position + sign * hop) % size, flow["way"], flow.get("link", 0)) for hop in range(last)]
    row, column = divmod(position, columns)
    found: list[tuple[object, ...]] = []
    for way in flow["ways"]:
        found.append((row, column, way))
        row, column = row + {"S": 1, "N": -1}.get(way, 0), column + {"E": 1, "W": -1}.get(way, 0)
    return found


def _each_chip(line: Line, reach: Callable[[int], tuple[int, int]]) -> list[Workers]:
    found: list[Workers] = []
    for position in range(line.chips):
        workers: Workers = []
        for link in range(line.links):
            flows = []
            for way, hops in zip("EW", reach(position), strict=True):
                if hops:
                    start, number = (1, hops) if line.is_multicast else (hops, 1)
                    flows.append(_flow(way, start, number, link))
            workers += [flows] if flows else []
        found.append(workers)
    return found


def _flow(way: str, start: int, number: int, link: int) -> Flow:
    return {"way": way, "start": start, "number": number, "link": link}


def _over(east: int, south: int) -> Flow:
    ways = ("E" if east > 0 else "W") * abs(east) + ("S" if south > 0 else "N") * abs(south)
    return {"ways": ways, "writes": "0" * (len(ways) - 1) + "1"}


COMMANDS = {
    "noc_unicast_write": "write",
    "noc_unicast_scatter_write": "scatter",
    "noc_unicast_flush_atomic_inc": "increment_flush",
    "noc_unicast_no_flush_atomic_inc": "increment",
    "noc_unicast_atomic_inc": "increment",
    "noc_fused_unicast_write_flush_atomic_inc": "fused",
    "noc_fused_unicast_write_no_flush_atomic_inc": "fused_no_flush",
    "noc_fused_unicast_atomic_inc": "fused",
}
"""NoC messages as published rows name them, and as the host script does."""
PATTERNS = ("neighbor", "line", "line_halves", "line_forward", "line_one_forward", "one_to_all", "half_ring",
            "half_ring_by_turns", "full_ring", "saturate_ring", "line_on_ring", "line_on_ring_halves",
            "line_on_ring_forward", "mesh_one_to_all", "mesh_all")  # fmt: skip
STATISTICS = ("busiest_link", "busiest_link_avg")
MOST_PAYLOAD = 4352
OLD, NEW = "2025-03", "2025-11"
PACKETS = 240
"""Over the busiest link in the longer of two runs; half as many in the other."""
MOST_CHIPS, MOST_LINKS, LEAST_PACKETS = 32, 4, 24


@dataclass(frozen=True)
class FabricCase(Case):
    """``pattern``: of ``PATTERNS``. ``shape``: rows and columns of a mesh, else 1 and chips. ``spare_slots``: as of
    ``tt.open_fabric``. ``counted``: flows over a link that a figure counts; None: those of the busiest. ``copies``:
    packets that are sent for each that it counts.
    """

    pattern: str = "line"
    is_multicast: bool = True
    ends_only: bool = False
    shape: tuple[int, int] = (1, 4)
    links: int = 1
    revision: str = NEW
    payload_bytes: int = 0
    command: str = "write"
    spare_slots: tuple[str, ...] = ROLES
    counted: float | None = None
    copies: int = 1

    @property
    def chips(self) -> int:
        """Of the fabric."""
        return self.shape[0] * self.shape[1]

    @property
    def topology(self) -> str:
        """Of the fabric."""
        if self.pattern == "neighbor":
            return "neighbor"
        if self.pattern.startswith("mesh"):
            return "mesh"
        return "ring" if "ring" in self.pattern else "line"

    @property
    def is_simulated(self) -> bool:
        """Whether its fabric can be: chips of a mesh have one link each way."""
        least = 3 if self.topology == "ring" else 2
        return least <= self.chips <= MOST_CHIPS and 1 <= self.links <= (1 if self.topology == "mesh" else MOST_LINKS)

    @property
    def farthest(self) -> int:
        """Hops of the longest route."""
        flows = (flow for workers in self.traffic() for each in workers for flow in each)
        return max(len(flow["ways"]) if "ways" in flow else flow["start"] + flow["number"] - 1 for flow in flows)

    def traffic(self) -> list[Workers]:
        """The flows of each chip."""
        chips, one_way = self.chips, self.pattern.endswith("_forward")
        line = Line(chips, self.is_multicast, self.ends_only, forward_only=one_way, links=self.links)
        if self.pattern == "mesh_one_to_all":
            return from_one_on_mesh(*self.shape)
        if self.pattern == "mesh_all":
            return all_on_mesh(*self.shape)
        if self.pattern == "one_to_all":
            return from_one(chips)
        if self.pattern == "neighbor":
            found = on_ring(line, 1, 1)
            found[0] = [[flow for flow in flows if flow["way"] == "E"] for flows in found[0]]
            found[-1] = [[flow for flow in flows if flow["way"] == "W"] for flows in found[-1]]
            return [[flows for flows in workers if flows] for workers in found]
        if self.topology == "ring" and not self.pattern.startswith("line_on_ring"):
            if self.pattern == "saturate_ring":
                return through_one_link(line)
            half = chips // 2
            hops = (chips - 1, chips - 1) if self.pattern == "full_ring" else (half, chips - 1 - half)
            return on_ring(line, *hops, by_turns=self.pattern.endswith("_by_turns"))
        ends_only = self.ends_only or self.pattern == "line_one_forward"
        return on_line(line._replace(ends_only=ends_only, halves=self.pattern.endswith("_halves")))


class FabricBandwidth(Bench[FabricCase]):
    """Rows ``busiest_link`` and ``busiest_link_avg`` in GB/s: bytes of payload over the link that most flows cross.

    All workers send at once.
    """

    case_type: ClassVar[type[Case]] = FabricCase
    about: ClassVar[str] = "bytes a second over the busiest link of a fabric of data movers"
    sizes: ClassVar[tuple[int, ...]] = (16, 2048, 4096)

    def add_flags(self, group: "argparse._ArgumentGroup") -> None:
        group.add_argument("--pattern", choices=PATTERNS, default="line", help="which chips send to which (line)")
        group.add_argument("--chips", type=flag_types.IntRange(2, MOST_CHIPS), default=4, metavar="N", help="(4)")
        group.add_argument(
            "--rows", type=flag_types.IntRange(1, MOST_CHIPS), default=1, metavar="N", help="of a mesh (1)"
        )
        group.add_argument(
            "--links", type=flag_types.IntRange(1, MOST_LINKS), default=1, metavar="N", help="side by side (1)"
        )
        group.add_argument("--unicast", action="store_true", help="to the last chip alone, not to all on the way")
        group.add_argument("--command", choices=sorted(set(COMMANDS.values())), default="write", help="(write)")
        group.add_argument("--revision", default=NEW, metavar="NAME", help=f"of the fabric's protocol ({NEW})")
        group.add_argument(
            "--payload", type=flag_types.size, default=0, metavar="BYTES", help="of the longest packet (the chip's)"
        )

    def check(self, chosen: argparse.Namespace, machine: Machine) -> None:
        machine.check_fabric(chosen.revision, chosen.sizes, chosen.payload)

    def cases(self, chosen: argparse.Namespace) -> list[FabricCase]:
        if chosen.chips % chosen.rows:
            raise ConfigError(f"--rows {chosen.rows}: {chosen.chips} chips do not divide into so many")
        shape = (chosen.rows, chosen.chips // chosen.rows)
        return [
            FabricCase(
                chosen.pattern,
                sizes=(nbytes,),
                pattern=chosen.pattern,
                is_multicast=not chosen.unicast,
                shape=shape,
                links=chosen.links,
                revision=chosen.revision,
                payload_bytes=chosen.payload,
                command=chosen.command,
                spare_slots=("dateline",) if chosen.pattern == "saturate_ring" else ROLES,
            )
            for nbytes in chosen.sizes
        ]

    def measure(self, case: FabricCase, machine: Machine) -> list[Figure]:
        (nbytes,) = case.sizes
        traffic, columns = case.traffic(), case.shape[1] if case.topology == "mesh" else 0
        streams = busiest(traffic, columns)
        packets = max(PACKETS // streams // 2, LEAST_PACKETS)
        ended_ns = []
        sips, setting = ("tt_ring", f"system.sips.num_links={case.links}")
        if case.topology == "mesh":
            sips, setting = "mesh_2d_no_wrap", f"system.sips.shape=[{case.shape[1]},{case.shape[0]}]"
        fabric = {"topology": case.topology, "num_links": case.links, "revision": case.revision, "columns": columns}
        fabric |= {"payload_bytes": case.payload_bytes or None, "spare_slots": case.spare_slots}
        for count in (packets, 2 * packets):
            asked = {"fabric": fabric, "workers": traffic, "packets": count, "nbytes": nbytes, "command": case.command}
            told = machine.with_first(setting).run("fabric_traffic", case.chips, asked, topology=sips)
            ended_ns.append(max(each["ended_ns"] for each in told))
        counted = streams if case.counted is None else case.counted
        value = nbytes * packets * counted / case.copies / (ended_ns[1] - ended_ns[0])
        return [Figure(case.test, nbytes, "GB/s", statistic, value) for statistic in STATISTICS]

    def effort(self, case: FabricCase) -> float:
        return float(case.chips * case.links)


BENCHES.register("fabric-bandwidth")(FabricBandwidth())


SAMPLES = 16
ONE_LINE, ONE_RING = (f"test_1D_{each}_fabric_latency_on_uncongested_fabric" for each in ("line", "ring"))
TOPOLOGIES = ("line", "ring", "mesh")
SLOPE = "round_trip_slope"
NET_STATISTIC = "net_avg_round_trip_1_hop_each_way"


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
    receiver's own time; ``slope_per_hop`` of round trips over 1 and more hops. Nothing else uses the fabric.
    """

    case_type: ClassVar[type[Case]] = LatencyCase
    about: ClassVar[str] = "the time of one packet at a time over a fabric of data movers"
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


BENCHES.register("fabric-latency")(FabricLatency())


MUX_PACKETS = 40
MUX_STATISTIC = "B/cycle at 1 GHz"
MOST_CHANNELS, MOST_SLOTS = 16, 64


@dataclass(frozen=True)
class MuxCase(Case):
    """``channels`` for whole packets, ``headers`` for packets without payload, ``slots`` of each."""

    headers: int = 0
    slots: int = 8
    revision: str = NEW


class FabricMux(Bench[MuxCase]):
    """Rows ``B/cycle at 1 GHz`` in GB/s: payload that all clients have sent, over the time until it has come."""

    case_type: ClassVar[type[Case]] = MuxCase
    about: ClassVar[str] = "bytes a second that a mux in front of a router passes on"
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

    def measure(self, case: MuxCase, machine: Machine) -> list[Figure]:
        (nbytes,), ended_ns = case.sizes, []
        for packets in (MUX_PACKETS, 2 * MUX_PACKETS):
            asked = {"full": case.channels, "headers": case.headers, "slots": case.slots, "nbytes": nbytes,
                     "packets": packets, "revision": case.revision}  # fmt: skip
            told = machine.run("fabric_mux", 2, asked, topology="tt_line" if machine.chip == "wormhole" else "ring_1d")
            ended_ns.append(told[0]["ended_ns"])
        value = case.channels * MUX_PACKETS * nbytes / (ended_ns[1] - ended_ns[0])
        return [Figure(case.test, nbytes, "GB/s", MUX_STATISTIC, value)]


BENCHES.register("fabric-mux")(FabricMux())
