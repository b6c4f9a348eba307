"""One digest for each engine, mail, kill and restart: a table of systems, each of which runs once in one process.

A run with a process for each SIP has the digest of that run, its rows, its second pass, and the counts of each rank;
also with another mail, and when a rank is killed in the middle and restarted. All systems run by these ways with
``--all``, some always.
"""

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import later_script
import pytest
from group_runs import HEAD
from launch import CHECKOUT, Done, launching
from launch_flags import launch_flags
from sweeps import crossed

pytestmark = pytest.mark.processes

HERE = Path(__file__).parent
HELPERS = CHECKOUT / "tests/inproc/helpers"
TENSIX = CHECKOUT / "docs/examples/tensix"
BENCHES = CHECKOUT / "scripts/benches"
FABRIC_LINE = {
    "fabric": {"topology": "line"},
    "flows": [
        {"at": 0, "way": "E", "start": 1, "number": 3, "command": "fused", "nbytes": 4352, "packets": 20},
        {"at": 3, "way": "W", "start": 2, "number": 2, "command": "scatter", "nbytes": 100, "packets": 20},
        {"at": 1, "way": "E", "start": 1, "number": 1, "packets": 20},
    ],
    "listen": {"3": [0]},
}
GALAXY = {
    "fabric": {"topology": "mesh", "columns": 8},
    "flows": [
        {"at": at, "east": to % 8 - at % 8, "south": to // 8 - at // 8, "nbytes": 1024}
        for at in (0, 7, 24, 31)
        for to in (0, 7, 24, 31)
        if at != to
    ],
}
"""A packet from each corner of 8 x 4 to each other, over the processes of the chips between."""
LAPS = """
def worker(rank, world_size, chip):
    if rank == 0:
        chip.send(1, 2, 0)
    for _ in range(5):
        number = chip.recv()
        if number < 5 * world_size - 1:
            chip.send((rank + 1) % world_size, number % 4, number + 1)
"""
GROUPS = """
    one = dict(dp=DPPolicy("row_wise", "row_wise", 1, 1))
    tensor = torch.zeros((3000,), dtype="f32", **one).fill_(rank + 1)
    got = torch.zeros((3000,), dtype="f32", **one)
    pairs = [dist.new_group([0, 2]), dist.new_group([3, 1])]
    for turn in range(4):
        group = dist.new_group([2, 0, 3])
        works = [dist.all_reduce(tensor, op="max", group=pairs[rank % 2], async_op=True)]
        works.append(dist.isend(tensor, (rank + 1) % 4))
        works.append(dist.irecv(got, (rank - 1) % 4))
        for work in works:
            work.wait()
        if rank != 1:
            dist.all_reduce(got, group=group, algorithm="direct")
        dist.destroy_process_group(group)
        dist.all_reduce(tensor, op="avg", algorithm="ring")
"""


class System(NamedTuple):
    """``sets``: values of ``--set``. ``script``: a path, or the source of a script."""

    flags: str
    sets: tuple[str, ...] = ()
    script: Path | str | None = None
    args: tuple[object, ...] = ()

    @property
    def words(self) -> list[object]:
        return [*self.flags.split(), *(word for value in self.sets for word in ("--set", value))]


def cubes(w: int, h: int) -> tuple[str, str]:
    return f"sip.cube_mesh.w={w}", f"sip.cube_mesh.h={h}"


def fabric(revision: str) -> str:
    return json.dumps({"seed": 3, "packets": 25, "nbytes": 1024, "revision": revision, "reach": 2})


SMALL = cubes(2, 2)
PE_COSTS = (
    *("pe_cpu.issue_ns=15", "pe_cpu.wakeup_ns=30", "pe_cpu.poll_ns=5", "pe_scheduler.queue_depth=2"),
    *("tcm_layout.handles_take_room=true", "defaults.poll_interval_max_ns=80"),
)
BUFFERS = ("router.buffer_packets=1", "io_port.buffer_packets=2", *cubes(2, 4))
RING = "--sips 4 --topology ring_1d --chip wormhole"
LAYER = (BENCHES / "mlp.py", ("--tokens", 6, "--hidden", 10, "--ffn", 32, "--cubes", 2, "--pes", 2))
SYSTEMS = {
    "one SIP": System("--sips 1 --bytes 4K", SMALL),
    "two SIPs, long frames": System(
        "--n-elem 400000", ("defaults.buffer_kind=hbm", "defaults.slot_size=1048576", *cubes(2, 1))
    ),
    "torus": System("--sips 4 --topology torus_2d"),
    "torus of 9": System("--sips 9 --topology torus_2d --bytes 4K", SMALL),
    "mesh over Ethernet": System(
        "--sips 6 --topology mesh_2d_no_wrap --shape 3x2 --link ethernet_100g --bytes 4K", SMALL
    ),
    "bf16": System("--n-elem 4097 --dtype bf16", SMALL),
    "i8": System("--n-elem 4097 --dtype i8", SMALL),
    "buffers": System("--sips 4 --topology torus_2d --n-elem 1024", BUFFERS),
    "buffers, credits over the fabric": System(
        "--sips 4 --topology torus_2d --n-elem 1024", (*BUFFERS, "defaults.credit_return_mode=fabric")
    ),
    "polls in place": System(
        "--sips 4 --topology torus_2d --bytes 48K --check-invariants",
        (*SMALL, *PE_COSTS, "defaults.latch=in_place", "defaults.backpressure=poll"),
    ),
    "sleeps with copies": System(
        "--sips 4 --topology torus_2d --bytes 48K --check-invariants",
        (*SMALL, *PE_COSTS, "defaults.latch=copy", "defaults.backpressure=sleep"),
    ),
    "page walks": System(
        "--bytes 48K", (*SMALL, "pe_mmu={page_KiB: 4, tlb_entries: 3, walk_ns: 200, virtual_rings: true}")
    ),
    "launches apart": System("--sips 4 --bytes 4K", (*SMALL, *launch_flags(max_start_skew_ns=300)[1::2])),
    "two algorithms in groups": System(
        "--sips 4 --topology torus_2d --bytes 8K --collective all_gather --algorithm ring,direct --group rows", SMALL
    ),
    "groups that come and go": System("--sips 4", (*cubes(2, 1), "cube.pes=2"), f"{HEAD}{GROUPS}"),
    "queue pairs made later": System(" ".join(map(str, later_script.FLAGS)), (), later_script.SCRIPT),
    "a layer": System("--sips 4 --topology torus_2d", cubes(2, 1), *LAYER),
    "a product": System(
        "--sips 1", (), BENCHES / "gemm.py", ("--m", 128, "--k", 200, "--n", 100, "--cubes", 2, "--pes", 2)
    ),
    "a ring": System("--sips 4 --link ethernet_100g --collective all_reduce --algorithm ring --bytes 16K", cubes(2, 1)),
    "a chip of a user": System(
        "--sips 4 --topology torus_2d",
        ("system.chip=lab.ring_chip", "system.chip_params={cores: 4, hop_ns: 2, service_ns: 30}"),
        LAPS,
    ),
    "traffic of a part": System(
        "--sips 4 --topology torus_2d --bytes 16K,32K", (*SMALL, "parts={lab.traffic: {period_ns: 40}}")
    ),
    "a memory with a resource": System(
        "--sips 4 --topology torus_2d --bytes 16K",
        (*SMALL, "defaults.buffer_kind=hbm", "hbm={kind: lab.queued, params: {places: 2, odd_ns: 15}}"),
    ),
    "data mover": System("--sips 2 --chip wormhole --link ethernet_100g", (), TENSIX / "slices.py"),
    "data mover, jitter and skew": System(
        "--sips 2 --chip wormhole --link ethernet_100g --jitter 5",
        ("system.chip_params.launch.start_skew_ns={1: 700}",),
        TENSIX / "slices.py",
    ),
    "data movers one after the other": System(
        "--sips 2 --chip wormhole --link ethernet_100g", (), HELPERS / "data_movers.py", (20,)
    ),
    "fabric of a line": System(RING, (), HERE / "fabric_flows.py", (json.dumps(FABRIC_LINE),)),
    "fabric with datelines": System(RING, (), HERE / "fabric_random.py", (fabric("2025-03"),)),
    "fabric with bubbles": System(RING, (), HERE / "fabric_random.py", (fabric("2025-11"),)),
    "galaxy": System("--chip wormhole --topology galaxy", (), HERE / "fabric_flows.py", (json.dumps(GALAXY),)),
    "ring of 8 Wormholes": System("--sips 8 --topology tt_ring --chip wormhole", (), HERE / "tensix_ring.py", (3,)),
    "ring of 8 Blackholes": System("--sips 8 --topology tt_ring --chip blackhole", (), HERE / "tensix_ring.py", (3,)),
}
DOWN_AT = {
    "a ring": "link:0.E@3us:50us",
    "fabric of a line": "link:0.E@3us:20us",
    "fabric with datelines": "link:0.E@3us:20us",
    "fabric with bubbles": "link:0.E@3us:20us",
    "ring of 8 Wormholes": "link:0.eth8@4us:20us",
    "ring of 8 Blackholes": "link:0.eth8@4us:20us",
}
"""Outages of a link in the middle of a run, each a system of its own."""
SYSTEMS |= {
    f"{name}, down": SYSTEMS[name]._replace(flags=f"{SYSTEMS[name].flags} --fault {fault}")
    for name, fault in DOWN_AT.items()
}
COUNTS = ("packets_sent", "packets_received", "bytes_sent", "events")
RANK = ("sim_end_ps", "tensor_sha256", "oplog_sha256", "outages")


def launch(folder: Path, name: str, *flags: object) -> Done:
    system = SYSTEMS[name]
    script: list[object] = [] if system.script is None else [system.script, *system.args]
    if isinstance(system.script, str):
        (folder / "script.py").write_text(system.script)
        script[0] = folder / "script.py"
    words = (*system.words, *flags, "--json", folder / "out.json", *script)
    with launching(*words, cwd=folder, PYTHONPATH=str(HELPERS)) as started:
        done = started.end()
    assert done.exit_code == 0, done.stderr
    assert done.left_files == []
    return done


@pytest.fixture(scope="module")
def in_one_process(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Any]:
    """The document of a system's run in one process, made once."""
    return cache(lambda name: launch(tmp_path_factory.mktemp("alone"), name, "--engine", "inproc").document)


WAYS = ("local", "killed", "unix", "shuffled")
PARTS = ("traffic of a part", "a memory with a resource")
KILLED = (
    *("torus", "groups that come and go", "queue pairs made later", "a layer", "a chip of a user", "data mover"),
    *PARTS,
)
UNIX = ("torus", "two SIPs, long frames", "data mover", "a ring")
SHUFFLED = ("page walks", "a product", "groups that come and go")
ORDINARY = [
    *((name, "local") for name in SYSTEMS),
    *((name, "killed") for name in SYSTEMS if name.startswith(("fabric", "ring of 8")) or name.endswith("down")),
    *((name, way) for way, names in (("killed", KILLED), ("unix", UNIX), ("shuffled", SHUFFLED)) for name in names),
]


@pytest.mark.parametrize(("name", "way"), crossed(SYSTEMS, WAYS, ordinary=ORDINARY))
def test_the_digest_is_that_of_one_process(
    name: str, way: str, tmp_path: Path, in_one_process: Callable[[str], Any]
) -> None:
    alone = in_one_process(name)
    ends_ps = [rank["sim_end_ps"] for rank in alone["ranks"]]
    killed = len(ends_ps) // 2 if way == "killed" else None
    flags = {
        "local": (),
        "killed": ("--max-restarts", 2, "--fault", f"kill:{killed}@{max(ends_ps) // 2}ps"),
        "unix": ("--mail", "unix"),
        "shuffled": ("--engine", "inproc", "--mail", "shuffled:1"),
    }[way]
    document = launch(tmp_path, name, *flags).document
    assert document["digest"] == alone["digest"]
    assert document["second_pass"] == alone["second_pass"]
    assert document["runs"] == alone["runs"]
    assert [rank["restarts"] for rank in document["ranks"]] == [int(number == killed) for number in range(len(ends_ps))]
    for key in (*RANK, *(COUNTS if killed is None else ())):
        assert [rank[key] for rank in document["ranks"]] == [rank[key] for rank in alone["ranks"]], key
    if way != "shuffled":
        assert len({rank["pid"] for rank in document["ranks"]}) == len(ends_ps)


@pytest.mark.parametrize("name", DOWN_AT)
def test_an_outage_is_in_the_middle_of_its_run(name: str, in_one_process: Callable[[str], Any]) -> None:
    down = in_one_process(f"{name}, down")
    assert down["digest"] != in_one_process(name)["digest"]
    resent = [outage["resent_packets"] for rank in down["ranks"] for outage in rank["outages"] or ()]
    assert sum(resent) > 0 or name != "a ring"
