"""Misuse of the fabric, each by name: what the pull request calls undefined, and what does not fit."""

from pathlib import Path

import pytest
from runs import Run, run, script_file

CHIPS = ("--set", "system.chip=wormhole", "--link", "ethernet_100g", "--topology", "ring_1d")

PROGRAM = """
from sipsim.tensix.dataflow import NocAddress
from sipsim.tensix.fabric.connection import FabricSender
from sipsim.tensix.fabric.packet import Way, increment_of, mesh_unicast, pack, unicast, write_and_increment, write_to

TARGET = write_to((1, 1), 0x40000)

def send(endpoint, df, hops=1, nbytes=64, target=TARGET):
    FabricSender(endpoint, df).send(unicast(hops), target, 0x30000, nbytes)

def slot(endpoint, number):
    return NocAddress(endpoint.router, endpoint.ring.address(number))

def kernel(endpoint, df):
    fabric = FabricSender(endpoint, df)
    {kernel}

def worker(rank, world_size, tt):
    def start(*cores, kernel=kernel, **how):
        program = tt.create_program()
        endpoint = fabric.connect(cores[0], "forward") if rank == 0 else None
        for core in cores if rank == 0 else ():
            tt.create_kernel(program, kernel, core, args=(endpoint,))
        tt.enqueue_program(program)
        tt.finish()

    here, *others = tt.workers
    {host}
"""
LINE = "fabric = tt.open_fabric(); start(here)"


def run_one(folder: Path, host: str, kernel: str = "pass", sips: int = 2, *flags: object) -> Run:
    source = PROGRAM.format(host=host, kernel=kernel.replace("; ", "\n    "))
    return run(*CHIPS, "--sips", sips, *flags, script_file(folder, source))


def line_of(done: Run) -> str:
    error = done.document["error"]
    assert error is not None, "it was not found"
    assert error["kind"] == "KernelMisuse", error
    assert "\n" not in error["message"]
    return str(error["message"])


SEND = "fabric.send(unicast(1), TARGET, 0x30000, 64)"
WRITE = "df.noc_async_write(0x30000, slot(endpoint, {}), endpoint.header_bytes); df.noc_async_write_barrier()"
PAUSE = "df.instructions(9000)"
GOOD = "df.write_bytes(0x30000, pack(unicast(1), TARGET, 64, endpoint.is_short))"


@pytest.mark.parametrize(
    ("kernel", "line"),
    [
        (SEND, "worker 1-1 sends to router 9-0 without a connection; call open() first"),
        (WRITE.format(0), "a packet was written into SIP 0 eth0 sender 0, to which no worker is connected; open it"),
        (f"fabric.open(); {GOOD}; {WRITE.format(1)}", "worker 1-1 wrote a packet at 0x"),
        (f"fabric.open(); {GOOD}; {WRITE.format(1)}", "of SIP 0 eth0 sender 0; the next slot is at 0x"),
        ("fabric.close()", "worker 1-1: its connection to router 9-0 is not open"),
        ("fabric.open(); fabric.open()", "worker 1-1: its connection to router 9-0 is open"),
        ("fabric.open(); fabric.send(unicast(1), TARGET, 0x30000, 4353)",
         "a payload of 4353 B; packets hold up to 4352 B"),
        ("fabric.open(); fabric.send(unicast(1), TARGET, 0x30000, 0)", "worker 1-1: "),
        ("fabric.open(); fabric.send(unicast(1), increment_of((1, 1), 0), 0x30000, 64)", "worker 1-1: "),
        ("fabric.open(); fabric.send(unicast(2), TARGET, 0x30000, 64); fabric.close(); df.instructions(9000)",
         "the route of a packet leads E from SIP 1 eth1 receiver 0, where the fabric has no link; give it fewer hops"),
        ("fabric.open(); fabric.send(mesh_unicast(1, 1), TARGET, 0x30000, 64); df.instructions(9000)",
         "the route of a packet leads S from SIP 1 eth1 receiver 0"),
        ("fabric.open(); fabric.send(unicast(1, Way.W), TARGET, 0x30000, 64)",
         "a route that begins W, and the link of router 9-0 goes E; give way=Way.E"),
        ("fabric.open(); fabric.send(None, TARGET, 0x30000, 64)", "send(route=None, "),
        ("fabric.open(); fabric.send(unicast(1), TARGET, 0x30000, 1.5)", "nbytes=1.5); give what unicast, write_to"),
        ("fabric.open(); fabric.send(unicast(1), increment_of((1, 1), 0x40001), 0, 0)",
         "a semaphore at 0x40001 of tile 1-1; words are at multiples of 4"),
        ("unicast(0)", "a packet for 1 chips from distance 0 on; 1 to 32 hops can be told"),
        ("unicast(33)", "1 to 32 hops can be told"),
        (f"fabric.open(); df.write_bytes(0x30000, bytes([9, 0, 64, 0]) + bytes(44)); {WRITE.format(0)}",
         "was written into a slot: its command is 9, and those of its revision are 0 to 3"),
        (f"fabric.open(); df.write_bytes(0x30000, bytes([0, 0, 1, 17]) + bytes(44)); {WRITE.format(0)}",
         "its payload is 4353 B, and a slot has room for 4352 B"),
        (f"fabric.open(); df.write_bytes(0x30000, bytes([0, 0, 64]) + bytes(45)); {WRITE.format(0)}; {PAUSE}",
         "a packet at SIP 1 eth1 receiver 0 has no route on"),
        ("df.noc_async_write(0x38000, NocAddress(endpoint.router, endpoint.connection), 16); df.instructions(900)",
         "SIP 0 eth0 sender 0: its connection's word is 0; 1 opens and 2 closes it"),
    ],
)  # fmt: skip
def test_misuse_in_a_kernel(kernel: str, line: str, tmp_path: Path) -> None:
    assert line in line_of(run_one(tmp_path, LINE, kernel))


WHOLE_TURN = "fabric.open(); fabric.send(unicast(3), TARGET, 0x30000, 64); fabric.close()"


@pytest.mark.parametrize(("spare", "may"), [(["dateline"], True), (["upstream"], False), ([], True)])
def test_a_whole_turn_needs_the_channels_that_others_have(tmp_path: Path, spare: list[str], may: bool) -> None:
    host = f"fabric = tt.open_fabric('ring', revision='2025-03', spare_slots={spare}); start(here)"
    done = run_one(tmp_path, host, WHOLE_TURN, 3)
    if may:
        assert done.document["error"] is None
    else:
        told = "a route of 3 hops on a ring where packets go up to 2; open_fabric(spare_slots=[]) lets them"
        assert told in line_of(done)


def test_a_connection_that_is_left_open_is_told(tmp_path: Path) -> None:
    done = run_one(tmp_path, LINE, f"fabric.open(); {SEND}; {PAUSE}")
    assert done.document["error"] is None
    assert "worker 1-1 has not closed its connection to SIP 0 eth0 sender 0" in "\n".join(done.outcome.notices)


def test_no_credit(tmp_path: Path) -> None:
    """More packets than there are slots, before the far end has opened the fabric."""
    writes = "; ".join(WRITE.format(number) for number in range(9))
    host = "fabric = tt.open_fabric() if rank == 0 else None; start(here)"
    line = line_of(run_one(tmp_path, host, f"fabric.open(); {GOOD}; {writes}"))
    assert line.startswith("worker 1-1 wrote into SIP 0 eth0 sender 0, whose slots are all taken; wait for a credit")


def test_two_workers_at_once(tmp_path: Path) -> None:
    line = line_of(run_one(tmp_path, "fabric = tt.open_fabric(); start(here, others[0])", f"fabric.open(); {SEND}"))
    told = "worker 1-1 connects to SIP 0 eth0 sender 0, and worker 2-1 is connected; one worker at a time"
    assert line.startswith(told), "the nearer one comes first"


def test_the_end_of_anothers_connection(tmp_path: Path) -> None:
    """One opens, and the other one says that it is at the end."""
    kernel = (
        "fabric.open() if df.core == (1, 1) else None; df.instructions(5000); fabric._is_open = True; fabric.close()"
    )
    line = line_of(run_one(tmp_path, "fabric = tt.open_fabric(); start(others[0], here)", kernel))
    assert "worker 2-1 closes its connection to SIP 0 eth0 sender 0, and has none" in line


@pytest.mark.parametrize(
    ("host", "sips", "line"),
    [
        ("fabric = tt.open_fabric(); tt.open_fabric()", 2, "(eth0) runs a router of another fabric; a link is of one"),
        ("fabric = tt.open_fabric('ring')", 2, "a ring of 2 chips; it has 3 or more"),
        ("fabric = tt.open_fabric('star')", 2, "a fabric's topology is line, ring, neighbor, mesh, not 'star'"),
        ("fabric = tt.open_fabric(chips=[0])", 2, "a line of 1 chips; it has 2 or more"),
        ("fabric = tt.open_fabric(chips=[0, 1, 0])", 2, "a chip stands twice in [0, 1, 0]"),
        ("fabric = tt.open_fabric('mesh', columns=2)", 3, "a mesh of 3 chips in 2 columns; give columns"),
        ("fabric = tt.open_fabric(chips=[1, 2])", 3, "SIP 0 opens a fabric of chips [1, 2], which it is none of"),
        ("fabric = tt.open_fabric(chips=[0, 2, 1, 3])", 4, "and 0 links lead from SIP 0 to SIP 2"),
        ("fabric = tt.open_fabric(num_links=9)", 2, "the fabric wants 3 links or more side by side, and 2 links lead"),
        ("fabric = tt.open_fabric(spare_slots='dateline')", 2, "spare_slots='dateline': give a list of some of "),
        ("fabric = tt.open_fabric(spare_slots=3)", 2, "spare_slots=3: give a list of some of "),
        ("fabric = tt.open_fabric(num_links=[1])", 2, "num_links=[1]: give a whole number, 1 or more"),
        ("fabric = tt.open_fabric(revision='2027')", 2, "revision='2027': give one of 2024-11, 2025-03, 2025-11"),
        ("fabric = tt.open_fabric(payload_bytes=9999)", 2, "payload_bytes=9999: give a whole number, 1 to 7616"),
        ("fabric = tt.open_fabric(payload_bytes=0)", 2, "payload_bytes=0: give a whole number, 1 to 7616"),
        ("fabric = tt.open_fabric(); fabric.connect(here, 'N')", 2, "SIP 0 has no router N on link 0; it has E link 0"),
        ("fabric = tt.open_fabric(); fabric.connect((0, 0), 'E')", 2, "tile 0-0 is no worker; Tensix tiles are"),
        ("fabric = tt.open_fabric(); [fabric.connect(here, fabric.ways()[0]) for _ in range(97)]", 2,
         "worker 1-1 has 96 connections, and no room for more; connect once, and give the endpoint to every kernel"),
        ("fabric = tt.open_fabric(); start(tt.ethernet_cores_to(1 - rank)[0])", 2, "tile 9-0 is no worker"),
        ("fabric = tt.open_fabric(); program = tt.create_program(); "
         "tt.create_kernel(program, kernel, tt.ethernet_cores_to(1 - rank)[0], args=(0,)); tt.enqueue_program(program)",
         2, "kernel kernel is for core 9-0 of SIP 0, which runs a router of the fabric"),
        ("program = tt.create_program(); "
         "tt.create_kernel(program, kernel, tt.ethernet_cores_to(1 - rank)[0], args=(0,)); "
         "tt.enqueue_program(program); fabric = tt.open_fabric()",
         2, "core 9-0 of SIP 0 (eth0) runs a kernel that has not ended, and a router needs it"),
    ],
)  # fmt: skip
def test_misuse_by_the_host_script(host: str, sips: int, line: str, tmp_path: Path) -> None:
    assert line in line_of(run_one(tmp_path, host, "pass", sips))


WHOLE = "give a whole number, "


@pytest.mark.parametrize(
    ("argument", "line"),
    [
        *((f"num_links={each}", f"num_links={each}: {WHOLE}1 or more") for each in ("0", "-1", "True", "'2'", "1.0")),
        *((f"'mesh', columns={each}", f"columns={each}: {WHOLE}0 or more") for each in ("-1", "True", "'2'", "None")),
        ("columns=2", "columns=2 of a line; a mesh has columns, leave them out"),
        *((f"payload_bytes={each}", f"payload_bytes={each}: {WHOLE}1 to 7616") for each in ("-16", "True", "'16'")),
        ("chips=3", "chips=3: give a list of ranks"),
        ("chips='01'", "chips='01': give a list of ranks"),
        ("chips=[0, 5]", f"a rank of chips=5: {WHOLE}0 to 1"),
        ("chips=[0, '1']", f"a rank of chips='1': {WHOLE}0 to 1"),
        ("revision=[]", "revision=[]: give one of 2024-11, 2025-03, 2025-11"),
    ],
)
def test_arguments_of_a_fabric(argument: str, line: str, tmp_path: Path) -> None:
    assert line in line_of(run_one(tmp_path, f"tt.open_fabric({argument})"))


@pytest.mark.parametrize(
    ("call", "line"),
    [
        ("connect(here, way, 1)", "SIP 0 has no router E on link 1; it has E link 0"),
        *((f"connect(here, way, {each})", f"link={each}: {WHOLE}0 or more") for each in ("-1", "True", "'0'", "[]")),
        ("connect(here, [])", "SIP 0 has no router [] on link 0; it has E link 0"),
        ("connect(3, way)", "worker=3: give a tile, (x, y)"),
        ("connect((1,), way)", "worker=(1,): give a tile, (x, y)"),
        *((f"connect_to_mux(mux, {each}, here)", f"channel of a mux={each}: {WHOLE}0 to 1") for each in
          ("2", "-1", "True", "'0'")),
        ("connect_to_mux(mux, 0, (0, 0))", "tile 0-0 is no worker"),
        ("connect_to_mux(None, 0, here)", "mux=None: give what fabric.create_mux returns"),
        ("create_mux(program, (9, 0), way, 1)", "tile 9-0 is no worker"),
        ("create_mux(program, here, way, 0)", f"channels of a mux (full + headers)=0: {WHOLE}1 or more"),
        ("create_mux(program, here, way, -1, 2)", f"full=-1: {WHOLE}0 or more"),
        ("create_mux(program, here, way, 1, '1')", f"headers='1': {WHOLE}0 or more"),
        ("create_mux(program, here, way, 1, 0, 0)", f"slots=0: {WHOLE}1 or more"),
    ],
)  # fmt: skip
def test_arguments_of_connections_and_muxes(call: str, line: str, tmp_path: Path) -> None:
    host = f"""fabric, program = tt.open_fabric(), tt.create_program()
    way = fabric.ways()[0]
    mux = fabric.create_mux(program, others[0], way, 2)
    fabric.{call}"""
    assert line in line_of(run_one(tmp_path, host))


def test_both_transmit_queues_are_for_no_fabric(tmp_path: Path) -> None:
    line = line_of(run_one(tmp_path, LINE, "pass", 2, "--set", "system.chip_params.ethernet.queues=2"))
    assert "a fabric with ethernet.queues=2, and its routers keep the second queue for credits; set system." in line


def test_connections_of_two_fabrics_lie_apart(tmp_path: Path) -> None:
    """The chip in the middle has a worker that is connected to both. The check fails the host script."""
    host = """fabrics = [tt.open_fabric(chips=chips) for chips in ([0, 1], [1, 2]) if rank in chips]
    found = [each.connect(here, way).words for each in fabrics for way in each.ways() for _ in range(2)]
    assert len({*found}) == 2 * len(fabrics), found"""
    done = run_one(tmp_path, host, "pass", 3)
    assert done.document["status"] == "ok", done.document["error"]


def test_slots_that_do_not_fit(tmp_path: Path) -> None:
    flags = ("--set", "system.chip_params.ethernet.l1_KiB=128")
    line = line_of(run_one(tmp_path, "fabric = tt.open_fabric(payload_bytes=7616)", "pass", 2, *flags))
    assert "packets of 7616 B: 2 sender and 1 receiver channels do not fit in the " in line


@pytest.mark.parametrize(
    "far", ["revision='2025-03', topology='ring'", "payload_bytes=1024", "topology='neighbor'", "revision='2024-11'"]
)
def test_two_ends_that_differ_are_both_named(far: str, tmp_path: Path) -> None:
    line = line_of(run_one(tmp_path, f"fabric = tt.open_fabric() if rank == 0 else tt.open_fabric({far})", "pass", 3))
    assert "both ends of its link must be of one fabric; here is 2025-" in line or "here is 2024-11" in line
    assert "2025-11 line, " in line
    told = line.split("here is ")[1].split(", there ")
    assert len({*told}) == 2, line


@pytest.mark.parametrize(
    ("sips", "one", "other", "told"),
    [
        (4, "'ring', chips=[1, 2, 3, 0]", "'ring'", ("1 of chips 1-3 0", "1 of chips 0-3")),
        (2, "num_links=2", "num_links=1", ("2 of chips 0-1", "1 of chips 0-1")),
        (2, "'mesh', columns=2", "'mesh', chips=[1, 0], columns=2", ("0-1 in 2 columns", "1 0 in 2 columns")),
    ],
)
def test_two_ends_that_count_otherwise_are_both_named(
    sips: int, one: str, other: str, told: tuple[str, str], tmp_path: Path
) -> None:
    line = line_of(run_one(tmp_path, f"fabric = tt.open_fabric({one}) if rank else tt.open_fabric({other})", "", sips))
    assert "both ends of its link must be of one fabric; here is 2025-11 " in line
    assert all(each in line for each in told), line


def test_a_fabric_that_one_side_opens_ends_in_a_deadlock_that_says_so(tmp_path: Path) -> None:
    many = f"fabric.open(); [{SEND} for _ in range(9)]; fabric.close()"
    done = run_one(tmp_path, "fabric = tt.open_fabric() if rank == 0 else None; start(here)", many)
    error = done.document["error"]
    assert error["kind"] == "Deadlock"
    (blocked,) = error["deadlock"]["blocked"]
    assert (blocked["name"], blocked["waits_for"]) == ("SIP 0 eth0 sender 0", "SIP 1 eth1 receiver 0")
    assert blocked["text"] == "the far end of the link has not opened the fabric"


def test_what_was_never_closed_is_no_error(tmp_path: Path) -> None:
    done = run_one(tmp_path, LINE, f"fabric.open(); {SEND}")
    assert done.document["status"] == "ok", done.document["error"]
