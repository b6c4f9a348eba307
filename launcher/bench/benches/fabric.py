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
"""Flow of packets in the format of host script ``fabric_traffic``, where the keys are described."""
Workers = list[list[Flow]]
"""Flows of one chip: a list per worker, in the format of host script ``fabric_traffic``."""


class LinePattern(NamedTuple):
    """Traffic pattern on a line or ring of ``chips``. ``is_multicast``: packets reach all chips on the route, otherwise
    only the last chip. ``ends_only``: only the chips at the ends send. ``forward_only``: no chip sends backward; with
    ``ends_only``, only chip 0 sends. ``halves``: the first half of the chips sends forward, the second half backward.
    ``links``: parallel links, each with a worker that serves both directions in turn.
    """

    chips: int
    is_multicast: bool
    ends_only: bool = False
    forward_only: bool = False
    halves: bool = False
    links: int = 1


def on_line(line: LinePattern) -> list[Workers]:
    """Return the flows on a line: each chip sends to both ends, unless ``line`` restricts the senders."""
    last = line.chips - 1

    def reach(position: int) -> tuple[int, int]:
        sends = not line.ends_only or position in ((0,) if line.forward_only else (0, last))
        is_first = position < line.chips // 2
        forward = sends and (is_first or not line.halves)
        backward = sends and not line.forward_only and not (is_first and line.halves)
        return (last - position if forward else 0), (position if backward else 0)

    return _each_chip(line, reach)


def on_ring(line: LinePattern, forward: int, backward: int, by_turns: bool = False) -> list[Workers]:
    """Return flows of each chip: ``forward`` hops E, ``backward`` hops W. ``by_turns``: even chips swap both."""
    return _each_chip(
        line, lambda position: (backward, forward) if by_turns and position % 2 == 0 else (forward, backward)
    )


def through_one_link(line: LinePattern) -> list[Workers]:
    """Return flows on a ring of 4 that use all sender channels of the routers between chips 1 and 2: in each direction,
    this link carries packets of the chips that are 1, 2 and 3 hops before the link's end.
    """

    def reach(position: int) -> tuple[int, int]:
        last = line.chips - 1
        forward = line.chips if position == last else max(last - position, 0)
        backward = line.chips if position == 0 else position
        return (forward if forward > 1 else 0), (backward if backward > 1 else 0)

    return _each_chip(line, reach)


def from_one(chips: int, at: int = 0) -> list[Workers]:
    """Return the flows on a line where one worker of chip ``at`` sends to every other chip in turn."""
    flows = [_flow("E" if to > at else "W", abs(to - at), 1, 0) for to in range(chips) if to != at]
    return [[flows] if position == at else [] for position in range(chips)]


def from_one_on_mesh(rows: int, columns: int) -> list[Workers]:
    """Return the flows on a mesh where one worker of chip 0 sends to every other chip in turn."""
    flows = [_over(column, row) for row in range(rows) for column in range(columns) if row or column]
    return [[flows], *([] for _ in range(rows * columns - 1))]


def all_on_mesh(rows: int, columns: int) -> list[Workers]:
    """Return the flows on a mesh where a worker of every chip multicasts to all others: along the chip's row, and
    through the chip's column along each other row.

    A packet follows a single path, so each direction of each row has a flow.
    """
    traffic: list[Workers] = []
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
            traffic.append([flows])
    return traffic


def busiest(traffic: list[Workers], columns: int = 0) -> int:
    """Return the number of flows over the busiest link, in one direction."""
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
    links: list[tuple[object, ...]] = []
    for way in flow["ways"]:
        links.append((row, column, way))
        row, column = row + {"S": 1, "N": -1}.get(way, 0), column + {"E": 1, "W": -1}.get(way, 0)
    return links


def _each_chip(line: LinePattern, reach: Callable[[int], tuple[int, int]]) -> list[Workers]:
    traffic: list[Workers] = []
    for position in range(line.chips):
        workers: Workers = []
        for link in range(line.links):
            flows = []
            for way, hops in zip("EW", reach(position), strict=True):
                if hops:
                    start, number = (1, hops) if line.is_multicast else (hops, 1)
                    flows.append(_flow(way, start, number, link))
            workers += [flows] if flows else []
        traffic.append(workers)
    return traffic


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
"""Command of the host script by the name of the NoC message in published rows."""
PATTERNS = ("neighbor", "line", "line_halves", "line_forward", "line_one_forward", "one_to_all", "half_ring",
            "half_ring_by_turns", "full_ring", "saturate_ring", "line_on_ring", "line_on_ring_halves",
            "line_on_ring_forward", "mesh_one_to_all", "mesh_all")  # fmt: skip
STATISTICS = ("busiest_link", "busiest_link_avg")
MOST_PAYLOAD = 4352
OLD, NEW = "2025-03", "2025-11"
PACKETS = 240
"""The number of packets over the busiest link in the longer of two runs; the shorter run has half as many."""
MOST_CHIPS, MOST_LINKS, LEAST_PACKETS = 32, 4, 24


@dataclass(frozen=True)
class FabricCase(Case):
    """Case of ``fabric-bandwidth``. ``pattern``: one of ``PATTERNS``. ``shape``: rows and columns; 1 row unless a mesh.
    ``spare_slots``: argument of ``tt.open_fabric``. ``counted``: number of flows over a link whose bytes the figure
    counts; None if all flows over the busiest link count. ``copies``: packets sent per counted packet.
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
        """The number of chips of the fabric."""
        return self.shape[0] * self.shape[1]

    @property
    def topology(self) -> str:
        """The topology of the fabric."""
        if self.pattern == "neighbor":
            return "neighbor"
        if self.pattern.startswith("mesh"):
            return "mesh"
        return "ring" if "ring" in self.pattern else "line"

    @property
    def is_simulated(self) -> bool:
        """Whether the simulator supports the numbers of chips and links; a mesh has one link between neighbours."""
        least = 3 if self.topology == "ring" else 2
        return least <= self.chips <= MOST_CHIPS and 1 <= self.links <= (1 if self.topology == "mesh" else MOST_LINKS)

    @property
    def farthest(self) -> int:
        """The number of hops of the longest route."""
        flows = (flow for workers in self.traffic() for each in workers for flow in each)
        return max(len(flow["ways"]) if "ways" in flow else flow["start"] + flow["number"] - 1 for flow in flows)

    def traffic(self) -> list[Workers]:
        """Return the flows of each chip."""
        chips, one_way = self.chips, self.pattern.endswith("_forward")
        line = LinePattern(chips, self.is_multicast, self.ends_only, forward_only=one_way, links=self.links)
        if self.pattern == "mesh_one_to_all":
            return from_one_on_mesh(*self.shape)
        if self.pattern == "mesh_all":
            return all_on_mesh(*self.shape)
        if self.pattern == "one_to_all":
            return from_one(chips)
        if self.pattern == "neighbor":
            traffic = on_ring(line, 1, 1)
            traffic[0] = [[flow for flow in flows if flow["way"] == "E"] for flows in traffic[0]]
            traffic[-1] = [[flow for flow in flows if flow["way"] == "W"] for flows in traffic[-1]]
            return [[flows for flows in workers if flows] for workers in traffic]
        if self.topology == "ring" and not self.pattern.startswith("line_on_ring"):
            if self.pattern == "saturate_ring":
                return through_one_link(line)
            half = chips // 2
            hops = (chips - 1, chips - 1) if self.pattern == "full_ring" else (half, chips - 1 - half)
            return on_ring(line, *hops, by_turns=self.pattern.endswith("_by_turns"))
        ends_only = self.ends_only or self.pattern == "line_one_forward"
        return on_line(line._replace(ends_only=ends_only, halves=self.pattern.endswith("_halves")))


class FabricBandwidth(Bench[FabricCase]):
    """Bench with rows ``busiest_link`` and ``busiest_link_avg``: payload in GB/s over the link with most flows.

    All workers send at the same time, and both rows have the same value.
    """

    case_type: ClassVar[type[Case]] = FabricCase
    about: ClassVar[str] = "bandwidth of the busiest link of a fabric of data movers"
    sizes: ClassVar[tuple[int, ...]] = (16, 2048, 4096)

    def add_flags(self, group: "argparse._ArgumentGroup") -> None:
        group.add_argument("--pattern", choices=PATTERNS, default="line", help="which chips send to which (line)")
        group.add_argument("--chips", type=flag_types.IntRange(2, MOST_CHIPS), default=4, metavar="N", help="chips (4)")
        group.add_argument(
            "--rows", type=flag_types.IntRange(1, MOST_CHIPS), default=1, metavar="N", help="rows of a mesh (1)"
        )
        group.add_argument(
            "--links", type=flag_types.IntRange(1, MOST_LINKS), default=1, metavar="N", help="parallel links (1)"
        )
        group.add_argument("--unicast", action="store_true", help="send only to the last chip of the route, not to all")
        group.add_argument("--command", choices=sorted(set(COMMANDS.values())), default="write", help="command (write)")
        group.add_argument("--revision", default=NEW, metavar="NAME", help=f"version of the fabric's protocol ({NEW})")
        group.add_argument(
            "--payload", type=flag_types.size, default=0, metavar="BYTES", help="longest payload (the chip's)"
        )

    def check(self, chosen: argparse.Namespace, machine: Machine) -> None:
        machine.check_fabric(chosen.revision, chosen.sizes, chosen.payload)

    def cases(self, chosen: argparse.Namespace) -> list[FabricCase]:
        if chosen.chips % chosen.rows:
            raise ConfigError(f"--rows {chosen.rows}: must divide the number of chips, {chosen.chips}")
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
            arguments = {"fabric": fabric, "workers": traffic, "packets": count}
            arguments |= {"nbytes": nbytes, "command": case.command}
            results = machine.with_first(setting).run("fabric_traffic", case.chips, arguments, topology=sips)
            ended_ns.append(max(each["ended_ns"] for each in results))
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
    """Case of ``fabric-latency``: round trips over ``hops`` hops each way or, if ``is_circuit``, laps of a ring."""

    topology: str = "line"
    chips: int = 2
    is_circuit: bool = False
    revision: str = NEW
    command: str = "write"
    is_half_rate: bool = False

    def flows(self) -> dict[str, Any]:
        """Return the arguments of host script ``fabric_latency`` for sender, receiver and routes."""
        if self.is_circuit:
            return {"sender": 0, "receiver": 0, "there": {"way": "E", "start": self.chips, "number": 1}}
        if self.topology == "mesh":
            flows = ({"ways": way * self.hops, "writes": "0" * (self.hops - 1) + "1"} for way in "EW")
            return {"sender": 0, "receiver": self.hops, **dict(zip(("there", "back"), flows, strict=True))}
        there, back = ({"way": way, "start": self.hops, "number": 1} for way in "EW")
        return {"sender": 0, "receiver": self.hops, "there": there, "back": back}


class FabricLatency(Bench[LatencyCase]):
    """Bench with rows in ns on an idle fabric: ``mean_round_trip``; ``per_hop``, the round trip divided by the hops;
    ``net_avg_round_trip_1_hop_each_way``, the round trip minus the receiver's time; ``slope_per_hop``, the increase per
    hop from round trips over 1 hop to round trips over more hops.
    """

    case_type: ClassVar[type[Case]] = LatencyCase
    about: ClassVar[str] = "latency of single packets over a fabric of data movers"
    sizes: ClassVar[tuple[int, ...]] = (16, 1024, 4096)

    def add_flags(self, group: "argparse._ArgumentGroup") -> None:
        group.add_argument("--fabric", choices=TOPOLOGIES, default="line", help="topology (line)")
        group.add_argument("--chips", type=flag_types.IntRange(2, MOST_CHIPS), default=8, metavar="N", help="chips (8)")
        group.add_argument(
            "--hops", type=flag_types.IntRange(1, MOST_CHIPS), default=1, metavar="N", help="hops to the receiver (1)"
        )
        group.add_argument("--command", choices=("write", "fused"), default="write", help="NoC command (write)")
        group.add_argument("--revision", default=NEW, metavar="NAME", help=f"version of the fabric's protocol ({NEW})")

    def check(self, chosen: argparse.Namespace, machine: Machine) -> None:
        machine.check_fabric(chosen.revision, chosen.sizes)

    def cases(self, chosen: argparse.Namespace) -> list[LatencyCase]:
        if chosen.hops >= chosen.chips:
            raise ConfigError(f"--hops {chosen.hops}: {chosen.chips} chips have {chosen.chips - 1} hops; give fewer")
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
            near, far = (self._times_ns(case, machine, hops, nbytes)["gross"] for hops in (1, case.hops))
            return [Figure(case.test, nbytes, "ns", "slope_per_hop", (far - near) / (case.hops - 1) / 2)]
        times_ns = self._times_ns(case, machine, case.hops, nbytes)
        hops = case.chips if case.is_circuit else 2 * case.hops
        values = {"mean_round_trip": times_ns["gross"], "per_hop": times_ns["gross"] / hops,
                  NET_STATISTIC: times_ns["net"]}  # fmt: skip
        return [Figure(case.test, nbytes, "ns", statistic, value) for statistic, value in values.items()]

    def _times_ns(self, case: LatencyCase, machine: Machine, hops: int, nbytes: int) -> dict[str, float]:
        rows = 2 if case.topology == "mesh" else 1
        fabric = {
            "topology": case.topology,
            "revision": case.revision,
            "columns": case.chips // rows if rows > 1 else 0,
            "spare_slots": () if case.is_circuit else ROLES,
        }
        arguments = {"fabric": fabric, "nbytes": nbytes, "samples": SAMPLES, "command": case.command}
        arguments |= LatencyCase(**{**case.__dict__, "hops": hops}).flows()
        sips = "mesh_2d_no_wrap" if rows > 1 else "ring_1d"
        if rows > 1:
            machine = machine.with_first(f"system.sips.shape=[{case.chips // rows},{rows}]")
        results = machine.run("fabric_latency", case.chips, arguments, topology=sips)
        gross = next(each["mean_ns"] for each in results if each["sender"])
        return {"gross": gross, "net": gross - sum(each["mean_ns"] for each in results if not each["sender"])}


BENCHES.register("fabric-latency")(FabricLatency())


MUX_PACKETS = 40
MUX_STATISTIC = "B/cycle at 1 GHz"
MOST_CHANNELS, MOST_SLOTS = 16, 64


@dataclass(frozen=True)
class MuxCase(Case):
    """Case of ``fabric-mux``. ``channels``, ``headers``: mux channels for packets with and without payload."""

    headers: int = 0
    slots: int = 8
    revision: str = NEW


class FabricMux(Bench[MuxCase]):
    """Bench with rows ``B/cycle at 1 GHz`` in GB/s: rate at which the payloads of all clients arrive."""

    case_type: ClassVar[type[Case]] = MuxCase
    about: ClassVar[str] = "bandwidth of a mux in front of a router"
    sizes: ClassVar[tuple[int, ...]] = (4096,)
    channels: ClassVar[tuple[int, ...]] = (1, 4, 8)

    def add_flags(self, group: "argparse._ArgumentGroup") -> None:
        group.add_argument("--headers", type=flag_types.IntRange(0, MOST_CHANNELS), default=0, metavar="N",
                           help="channels for packets without payload (0)")  # fmt: skip
        group.add_argument(
            "--slots", type=flag_types.IntRange(1, MOST_SLOTS), default=8, metavar="N", help="slots per channel (8)"
        )

    def check(self, chosen: argparse.Namespace, machine: Machine) -> None:
        machine.check_fabric(NEW, chosen.sizes)

    def cases(self, chosen: argparse.Namespace) -> list[MuxCase]:
        return [MuxCase("mux", channels, 0, (nbytes,), chosen.headers, chosen.slots)
                for channels in chosen.channels for nbytes in chosen.sizes]  # fmt: skip

    def measure(self, case: MuxCase, machine: Machine) -> list[Figure]:
        (nbytes,), ended_ns = case.sizes, []
        for packets in (MUX_PACKETS, 2 * MUX_PACKETS):
            arguments = {"full": case.channels, "headers": case.headers, "slots": case.slots, "nbytes": nbytes,
                         "packets": packets, "revision": case.revision}  # fmt: skip
            topology = "tt_line" if machine.chip == "wormhole" else "ring_1d"
            ended_ns.append(machine.run("fabric_mux", 2, arguments, topology=topology)[0]["ended_ns"])
        value = case.channels * MUX_PACKETS * nbytes / (ended_ns[1] - ended_ns[0])
        return [Figure(case.test, nbytes, "GB/s", MUX_STATISTIC, value)]


BENCHES.register("fabric-mux")(FabricMux())
