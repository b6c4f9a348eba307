"""Host script ``fabric_traffic``: workers that send packets over a fabric.

Settings: ``fabric`` (arguments of ``tt.open_fabric``), ``workers`` by chip (each worker sends one packet of each of its
flows in turn), ``packets`` per flow, ``nbytes``, ``command``. A flow on a line or ring leads in direction ``way`` over
link ``link`` to ``number`` chips from distance ``start`` on. On a mesh, ``ways`` lists a flow's hops, and ``writes``
marks with 1 the hops after which a packet is delivered. Each flow has a separate address at every target, where the
script checks the payload; it also counts the last packets. Reported is the time from the start of a chip's workers
until the last packets of all flows to the chip have arrived.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

from launcher.bench.programs.common import check, pattern, report, settings
from sipsim.chips.tensix.dataflow import Dataflow
from sipsim.chips.tensix.fabric.connection import FabricEndpoint, FabricSender
from sipsim.chips.tensix.fabric.packet import (
    Direction,
    Route,
    Target,
    increment_of,
    multicast,
    path,
    scatter_to,
    write_and_increment,
    write_to,
)

HALF = 2


class Flow(NamedTuple):
    """Packets of one worker over one route. ``number``: unique in the run; ``endpoint``: index of the endpoint."""

    number: int
    endpoint: int
    route: Route


def send(endpoints: Sequence[FabricEndpoint], flows: Sequence[Flow], targets: Sequence[tuple[Target, Target]],
         packets: int, source: int, nbytes: int, df: Dataflow) -> None:  # fmt: skip
    """Run the kernel of a sender. ``targets``: per flow, the target of all packets but the last, and the last packet's
    target. All packets have the same payload, which the sender writes into each slot once.
    """
    senders = [FabricSender(endpoint, df) for endpoint in endpoints]
    unwritten = [endpoint.ring.slots for endpoint in endpoints]
    for sender in senders:
        sender.open()
    for number in range(packets):
        for flow, (target, last) in zip(flows, targets, strict=True):
            to = last if number == packets - 1 else target
            carried = nbytes if to.takes_payload else 0
            if unwritten[flow.endpoint]:
                unwritten[flow.endpoint] -= 1
                senders[flow.endpoint].send(flow.route, to, source, carried)
            else:
                senders[flow.endpoint].send_header(flow.route, to, carried)
    for sender in senders:
        sender.close()


def collect(semaphore: int, expected: int, df: Dataflow) -> None:
    """Run the kernel of a target: wait until all flows have arrived."""
    df.noc_semaphore_wait(semaphore, expected)


def route_of(flow: dict[str, Any]) -> Route:
    """Return the route of ``flow``, an element of the settings."""
    if "way" in flow:
        return multicast(flow["start"], flow["number"], Direction[flow["way"]])
    return path([Direction[each] for each in flow["ways"]], [mark == "1" for mark in flow["writes"]])


def reached(flow: dict[str, Any], position: int, size: int, columns: int) -> list[int]:
    """Return the positions of the target chips of a flow from the chip at ``position``."""
    if "way" in flow:
        sign = 1 if flow["way"] == "E" else -1
        return [(position + sign * hop) % size for hop in range(flow["start"], flow["start"] + flow["number"])]
    found = []
    for way, mark in zip(flow["ways"], flow["writes"], strict=True):
        position += {"E": 1, "W": -1, "S": columns, "N": -columns}[way]
        found += [position] if mark == "1" else []
    return found


def worker(rank: int, world_size: int, tt: Any) -> None:
    """Run on each chip: the chip's senders, and on the same tiles kernels that wait for arrivals."""
    chosen = settings()
    nbytes, packets, command, flows_of = (chosen[name] for name in ("nbytes", "packets", "command", "workers"))
    fabric = tt.open_fabric(**chosen["fabric"])
    columns = chosen["fabric"].get("columns", 0) or fabric.size
    semaphore = tt.l1_base(tt.workers[0])
    source, arrivals = semaphore + 64, semaphore + 64 + max(nbytes, 16)
    stride, numbers = -(-nbytes // 16) * 16, _numbered(flows_of)

    program = tt.create_program()
    for index, flows in enumerate(flows_of[fabric.position]):
        core = tt.workers[index]
        links = list(dict.fromkeys((first_way(flow), flow.get("link", 0)) for flow in flows))
        endpoints = [fabric.connect(core, way, link) for way, link in links]
        sent, targets = list[Flow](), list[tuple[Target, Target]]()
        for flow in flows:
            number = numbers[fabric.position, index, len(sent)]
            sent.append(Flow(number, links.index((first_way(flow), flow.get("link", 0))), route_of(flow)))
            targets.append(_targets(command, (core, arrivals + number * stride), nbytes, core, semaphore))
        tt.write(core, source, pattern(nbytes, fabric.position))
        config = tt.DataMovementConfig(noc=tt.nearer_noc(core, endpoints[0].router))
        tt.create_kernel(program, send, core, config, (endpoints, sent, targets, packets, source, nbytes))
    arriving = [
        (numbers[position, index, each], position, index)
        for position, workers in enumerate(flows_of)
        for index, flows in enumerate(workers)
        for each, flow in enumerate(flows)
        if fabric.position in reached(flow, position, fabric.size, columns)
    ]
    for index, count in sorted(Counter(index for _, _, index in arriving).items()):
        expected = count * _increments(command, packets)
        tt.create_kernel(program, collect, tt.workers[index], tt.DataMovementConfig(1), (semaphore, expected))
    begin_ns = tt.now_ns()
    tt.enqueue_program(program)
    tt.finish()
    if command not in ("increment", "increment_flush"):
        for number, position, index in arriving:
            found = tt.read(tt.workers[index], arrivals + number * stride, nbytes)
            check(f"flow {number} at chip {fabric.position}", found, pattern(nbytes, position))
    report(rank=rank, ended_ns=tt.now_ns() - begin_ns)


def _increments(command: str, packets: int) -> int:
    return packets if command in ("fused", "fused_no_flush", "increment", "increment_flush") else 1


def _targets(command: str, place: tuple[Any, int], nbytes: int, core: Any, semaphore: int) -> tuple[Target, Target]:
    last = write_and_increment(*place, core, semaphore, is_flushed=False)
    if command == "write":
        return write_to(*place), last
    if command == "scatter":
        first = -(-nbytes // HALF // 16) * 16
        return scatter_to(place, (place[0], place[1] + first), first), last
    if command in ("increment", "increment_flush"):
        found = increment_of(core, semaphore, is_flushed=command == "increment_flush")
        return found, found
    found = write_and_increment(*place, core, semaphore, is_flushed=command == "fused")
    return found, found


def first_way(flow: dict[str, Any]) -> str:
    """Return the direction of the first hop of ``flow``, an element of the settings."""
    return str(flow["way"] if "way" in flow else flow["ways"][0])


def _numbered(flows_of: Sequence[Sequence[Sequence[Any]]]) -> dict[tuple[int, int, int], int]:
    places = [
        (position, index, each)
        for position, workers in enumerate(flows_of)
        for index, flows in enumerate(workers)
        for each in range(len(flows))
    ]
    return {place: number for number, place in enumerate(places)}
