"""The fabric with a process for each chip: digests as in one process, a death that is made good, links that go down."""

import json
from pathlib import Path

import pytest
from launch import Done, launching

HERE = Path(__file__).parent
FLOWS, RANDOM = HERE / "fabric_flows.py", HERE / "fabric_random.py"
MULTICAST = {
    "fabric": {"topology": "line"},
    "flows": [
        {"at": 0, "way": "E", "start": 1, "number": 3, "command": "fused", "nbytes": 4352, "packets": 20},
        {"at": 3, "way": "W", "start": 2, "number": 2, "command": "scatter", "nbytes": 100, "packets": 20},
        {"at": 1, "way": "E", "start": 1, "number": 1, "packets": 20},
    ],
    "listen": {"3": [0]},
}
OUTAGE = ("--fault", "link:0.E@3us:20us")
KILLED = ("--max-restarts", 1, "--fault", "kill:2@5us")
MESH = {
    "fabric": {"topology": "mesh", "columns": 8},
    "flows": [
        {"at": at, "east": to % 8 - at % 8, "south": to // 8 - at // 8, "nbytes": 1024}
        for at in (0, 7, 24, 31)
        for to in (0, 7, 24, 31)
        if at != to
    ],
}


def launch(folder: Path, *flags: object) -> Done:
    words = ("--chip", "wormhole", *flags[:-2], "--json", folder / "out.json", flags[-2], json.dumps(flags[-1]))
    with launching(*words, cwd=folder) as started:
        done = started.end()
    assert done.exit_code == 0, done.stderr
    assert done.left_files == []
    return done


def ring(revision: str) -> tuple[object, ...]:
    return RANDOM, {"seed": 3, "packets": 25, "nbytes": 1024, "revision": revision, "reach": 2}


@pytest.mark.parametrize(
    "script", [(FLOWS, MULTICAST), ring("2025-03"), ring("2025-11")], ids=["line with multicast", "dateline", "bubble"]
)
def test_four_processes_do_as_one(tmp_path: Path, script: tuple[object, ...]) -> None:
    """As it is and with a link that goes down in the middle, each also with a process that dies."""
    chips = ("--sips", 4, "--topology", "ring_1d")
    digests = []
    for flags in ((), OUTAGE):
        alone = launch(tmp_path, *chips, "--engine", "inproc", *flags, *script)
        digests.append(alone.digest)
        for more in ((), KILLED):
            done = launch(tmp_path, *chips, "--engine", "local", *flags, *more, *script)
            assert done.digest == alone.digest
            assert [rank["restarts"] for rank in done.document["ranks"]] == [0, 0, int(bool(more)), 0]
    assert len({*digests}) == 2, "the outage was in the middle"


def test_a_galaxy_of_32_chips(tmp_path: Path) -> None:
    """A packet from each corner of 8 x 4 to each other, over the processes of the chips between."""
    words = ("--topology", "galaxy", "--engine")
    done, alone = (launch(tmp_path, *words, engine, FLOWS, MESH) for engine in ("local", "inproc"))
    assert len(done.document["ranks"]) == 32
    assert done.digest == alone.digest
