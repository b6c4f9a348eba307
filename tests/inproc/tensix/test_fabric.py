"""The fabric on real chips, end to end: who gets a packet and who does not, with every command, route and revision."""

from collections.abc import Sequence
from itertools import product
from pathlib import Path

import pytest
from fabric_runs import Flow, passed, run_flows
from runs import Run, run, script_file

BASE, STRIDE, SEMAPHORES, NBYTES = 0x40000, 0x3000, 0x20000, 64
REVISIONS = ("2024-11", "2025-03", "2025-11")


def data(number: int, nbytes: int) -> bytes:
    return bytes((number * 37 + each * 3 + 1) % 251 for each in range(nbytes))


def expected(number: int, flow: Flow) -> tuple[bytes, int]:
    """What lies at a flow's place on a chip that it comes to, and in its semaphore."""
    command, nbytes = flow.get("command", "write"), flow.get("nbytes", NBYTES)
    semaphore = 0 if command in ("write", "scatter") else flow.get("packets", 1)
    sent = data(number, nbytes)
    if command.startswith("increment"):
        return bytes(STRIDE), semaphore
    if command == "scatter":
        return (sent[:48].ljust(STRIDE // 2, b"\0") + sent[48:]).ljust(STRIDE, b"\0"), semaphore
    return sent.ljust(STRIDE, b"\0"), semaphore


def reached(flow: Flow, sips: int, columns: int, is_ring: bool) -> set[int]:
    if "east" in flow:
        return {flow["at"] + flow["east"] + flow["south"] * columns}
    sign = 1 if flow["way"] == "E" else -1
    last = flow["start"] + flow.get("number", 1)
    chips = [flow["at"] + sign * hop for hop in range(flow["start"], last)]
    return {chip % sips if is_ring else chip for chip in chips}


def check(done: Run, flows: Sequence[Flow], columns: int = 0, is_ring: bool = False, programs: int = 1) -> None:
    """Every chip has what comes to it, and nothing else."""
    sips = len(done.members)
    for member in done.members:
        chip = member.chip
        memory, rank = chip.tiles.memory(chip.metal.workers[-1]), chip.metal.rank
        for number, flow in enumerate(flows):
            found = memory.read(BASE + number * STRIDE, STRIDE), memory.word(SEMAPHORES + 16 * number)
            content, semaphore = expected(number, flow)
            if rank not in reached(flow, sips, columns, is_ring):
                content, semaphore = bytes(STRIDE), 0
            assert found == (content, semaphore * programs), (rank, number, flow)


def line_flows(sips: int) -> list[Flow]:
    """Every route of a line: from every chip, both ways, to every range of chips."""
    return [
        {"at": at, "way": way, "start": start, "number": number}
        for way in "EW"
        for at in range(sips)
        for start in range(1, sips)
        for number in range(1, sips)
        if start + number - 1 <= (sips - 1 - at if way == "E" else at)
    ]


# --- who gets a packet ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("revision", REVISIONS)
@pytest.mark.parametrize("sips", [2, 4])
def test_a_packet_comes_to_the_chips_of_its_route_and_to_no_others(sips: int, revision: str) -> None:
    flows = line_flows(sips)
    check(passed(run_flows(sips, flows, fabric={"topology": "line", "revision": revision})), flows)


@pytest.mark.parametrize("revision", REVISIONS[1:])
def test_around_a_ring(revision: str) -> None:
    """Every distance but that back to the sender, and every range."""
    flows: list[Flow] = [
        {"at": at, "way": way, "start": start, "number": number}
        for at in range(4)
        for way in "EW"
        for start in (1, 2, 3)
        for number in range(1, 5 - start)
    ]
    check(passed(run_flows(4, flows, fabric={"topology": "ring", "revision": revision})), flows, is_ring=True)


@pytest.mark.parametrize("revision", REVISIONS[1:])
def test_over_a_mesh(revision: str) -> None:
    """From each chip of 2 x 3 to each other, first to the east or west, then to the south or north."""
    flows: list[Flow] = [
        {"at": at, "east": to % 3 - at % 3, "south": to // 3 - at // 3}
        for at in range(6)
        for to in range(6)
        if at != to
    ]
    check(
        passed(run_flows(6, flows, fabric={"topology": "mesh", "columns": 3, "revision": revision})), flows, columns=3
    )


def test_neighbours_only() -> None:
    flows: list[Flow] = [{"at": at, "way": way, "start": 1} for at, way in ((0, "E"), (1, "E"), (1, "W"), (2, "W"))]
    check(passed(run_flows(3, flows, fabric={"topology": "neighbor"})), flows)


@pytest.mark.parametrize("nbytes", [1, 3, 17])
def test_packets_of_a_few_bytes(nbytes: int) -> None:
    flows: list[Flow] = [{"at": 0, "way": "E", "start": 1, "number": 2, "nbytes": nbytes, "packets": 20}]
    check(passed(run_flows(3, flows, fabric={"topology": "line", "payload_bytes": nbytes})), flows)


COMMANDS = ("write", "increment", "increment_flush", "fused", "fused_no_flush", "scatter")
OLD = [("2024-11", command) for command in COMMANDS[:3]]


@pytest.mark.parametrize(("revision", "command"), [*product(REVISIONS[1:], COMMANDS), *OLD])
def test_every_command(revision: str, command: str) -> None:
    """To one chip and to several, more packets than there are slots, of any size."""
    flows = [
        {"at": at, "way": way, "start": start, "number": 3 - start, "command": command, "nbytes": nbytes, "packets": 20}
        for at, way, start, nbytes in ((0, "E", 1, 4352), (2, "W", 2, 50), (0, "E", 2, 64), (2, "W", 1, 1000))
    ]
    check(passed(run_flows(3, flows, fabric={"topology": "line", "revision": revision})), flows)


@pytest.mark.parametrize("command", ["fused", "fused_no_flush"])
@pytest.mark.parametrize("nbytes", [16, 4352])
def test_an_increment_comes_behind_its_write(command: str, nbytes: int) -> None:
    """A kernel that waits for the semaphore looks at the data at once."""
    flows = [{"at": 0, "way": "E", "start": 1, "number": 2, "command": command, "nbytes": nbytes}]
    check(passed(run_flows(3, flows, listen={"1": [0], "2": [0]}, fabric={"topology": "line"})), flows)


def test_one_program_after_the_other_connects_anew() -> None:
    flows = [
        {"at": at, "way": way, "start": 1, "command": "increment", "packets": 5} for at, way in ((0, "E"), (1, "W"))
    ]
    check(passed(run_flows(2, flows, programs=4, fabric={"topology": "line"})), flows, programs=4)


@pytest.mark.parametrize("skew_ns", [{"0": 9000}, {"1": 9000}, {"0": 40, "2": 20000}])
def test_start_skew_only_delays(skew_ns: dict[str, int]) -> None:
    """The handshake of an early chip lies in the memory of a late one when that opens the fabric."""
    flows = line_flows(3)
    skew = [
        word for sip, ns in skew_ns.items() for word in ("--set", f"system.chip_params.launch.start_skew_ns.{sip}={ns}")
    ]
    check(passed(run_flows(3, flows, *skew, fabric={"topology": "line"})), flows)


def test_a_revision_of_ones_own() -> None:
    """Short headers with completions: from a config, by its name."""
    keys = "flow_control: completions, avoidance: none, has_short_headers: true, spare_slots: [], costs: null"
    mine = f"system.chip_params.fabric.revisions.mine={{{keys}, slots: [{{sender: 2, receiver: 3}}]}}"
    flows = line_flows(3)
    fabric = {"topology": "line", "revision": "mine"}
    done = passed(run_flows(3, flows, "--set", mine, fabric=fabric))
    check(done, flows)
    (router, *_) = done.members[1].chip.fabrics[0].routers
    assert ([each.ring.slots for each in router.senders], router.receivers[0].ring.slots) == ([2, 2], 3)


@pytest.mark.parametrize("revision", REVISIONS[1:])
def test_a_server_a_channel_changes_times_alone(revision: str) -> None:
    """Flushed packets from all chips to all others, on two virtual channels where there are two."""
    flows: list[Flow] = [
        {"at": at, "way": "E", "start": 1, "number": 3, "command": "fused", "nbytes": 2048, "packets": 30}
        for at in range(4)
    ]
    fabric = {"topology": "ring", "revision": revision}
    ends = []
    for more in ((), ("--set", "system.chip_params.fabric.one_server=false")):
        done = passed(run_flows(4, flows, *more, fabric=fabric))
        check(done, flows, is_ring=True)
        ends.append(max(end_ps for *_, end_ps in done.results()))
    assert ends[1] != ends[0]


def test_a_credit_of_a_former_connection_counts_for_no_later_one() -> None:
    """Where credits take longer than to close a connection and to open the next one."""
    flow = {"start": 1, "command": "increment", "packets": 12}
    flows: list[Flow] = [{"at": at, "way": way, **flow} for at, way in ((0, "E"), (1, "W"))]
    slow = ("--set", "system.chip_params.fabric.costs.credit_ns=20000")
    check(passed(run_flows(2, flows, *slow, fabric={"topology": "line"}, programs=4)), flows, programs=4)


def test_a_revision_may_have_a_long_name() -> None:
    """The handshake has room for 96 B, in front of the credits."""
    name = "a-revision-" * 12
    keys = "flow_control: completions, avoidance: none, has_short_headers: true, spare_slots: [], costs: null"
    mine = f"system.chip_params.fabric.revisions.{name}={{{keys}, slots: [{{sender: 2, receiver: 3}}]}}"
    flows = line_flows(2)
    check(passed(run_flows(2, flows, "--set", mine, fabric={"topology": "line", "revision": name})), flows)


@pytest.mark.parametrize(("topology", "slots"), [("line", (8, 8)), ("mesh", (7, 11))])
def test_a_mesh_has_slots_of_its_own(tmp_path: Path, topology: str, slots: tuple[int, int]) -> None:
    """The first of each list that fits: on a line 24 of the longer slots, on a mesh 39."""
    nbytes = {"line": 5440, "mesh": 3264}[topology]
    columns = "columns=2, " if topology == "mesh" else "chips=[0, 1], "
    opened = f"tt.open_fabric({topology!r}, {columns}payload_bytes={nbytes})"
    source = f"def worker(rank, world_size, tt):\n    if rank < 2 or {topology == 'mesh'}:\n        {opened}\n"
    chips = ("--chip", "wormhole", "--sips", 4, "--topology", "mesh_2d_no_wrap")
    done = run(*chips, script_file(tmp_path, source))
    assert done.document["error"] is None
    [fabric] = done.members[0].chip.fabrics
    assert {
        (sender.ring.slots, router.receivers[0].ring.slots) for router in fabric.routers for sender in router.senders
    } == {slots}


NEAR_AND_FAR = """
from sipsim.chips.tensix.fabric.connection import FabricSender
from sipsim.chips.tensix.fabric.packet import unicast, write_and_increment, write_to

def send(endpoint, near, far, df):
    fabric = FabricSender(endpoint, df)
    fabric.open()
    fabric.send(unicast(1), write_to(far, 0x40000), 0x30000, 4096)
    fabric.send(unicast(1), write_and_increment(near, 0x40000, near, 0x20000), 0x30000, 16)
    fabric.close()

def worker(rank, world_size, tt):
    fabric = tt.open_fabric()
    near, far = tt.workers[-1], (4, 5)
    program = tt.create_program()
    if rank == 0:
        tt.create_kernel(program, send, near, args=(fabric.connect(near, "forward"), near, far))
    tt.enqueue_program(program)
    tt.finish()
"""


def test_a_flushed_increment_is_behind_packets_before_it_to_other_tiles(tmp_path: Path) -> None:
    """Its own payload is on its tile long before theirs is, as a hop of the NoC is slow."""
    flags = ("--topology", "n300", "--set", "system.chip_params.noc.hop_cycles=200")
    done = passed(run(*flags, script_file(tmp_path, NEAR_AND_FAR), keep_oplog=True))
    records = done.members[1].chip.oplog.records
    written = [record[2] for record in records if record[0] == "noc.write" and record[6] == 0x40000]
    [raised] = [record[2] for record in records if record[0] == "noc.increment" and record[6] == 0x20000]
    assert len(written) == 2
    assert raised >= max(written)
