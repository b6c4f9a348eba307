"""A ring of eight chips, a process each: digests of engines, a death that is made good, an outage of a link."""

from pathlib import Path

import pytest
from launch import Done, launching

RING = Path(__file__).parent / "tensix_ring.py"


def launch(folder: Path, *flags: object, laps: int = 3) -> Done:
    words = ("--sips", 8, "--topology", "tt_ring", *flags, "--json", folder / "out.json", RING, laps)
    with launching(*words, cwd=folder) as started:
        return started.end()


@pytest.mark.parametrize("chip", ["wormhole", "blackhole"])
def test_eight_processes_do_as_one(tmp_path: Path, chip: str) -> None:
    """With a process that dies, and with a link that goes down, on one of the same command each."""
    outage = ("--fault", "link:0.eth8@4us:20us")
    killed = ("--max-restarts", 1, "--fault", "kill:3@6us")
    digests = {}
    for name, flags in {"as is": (), "down": outage}.items():
        alone = launch(tmp_path, "--chip", chip, "--engine", "inproc", *flags)
        assert alone.exit_code == 0, alone.stderr
        digests[name] = alone.digest
        for more in ((), killed):
            done = launch(tmp_path, "--chip", chip, *flags, *more)
            assert done.exit_code == 0, done.stderr
            assert done.digest == alone.digest
            assert done.document["ranks"][3]["restarts"] == len(more) // 4
            assert done.left_files == []
    assert len({*digests.values()}) == 2


def test_a_script_is_needed(tmp_path: Path) -> None:
    with launching("--chip", "wormhole", "--sips", 2, cwd=tmp_path) as started:
        done = started.end()
    assert done.exit_code == 2
    assert done.stderr == "ahbm-launch: system.chip = wormhole: its SIPs run host scripts only; give a script\n"


@pytest.mark.parametrize(
    ("flags", "line"),
    [
        (("--chip", "wormhoel"), "did you mean 'wormhole'?"),
        (("--chip", "ahbm", "--topology", "t3000"), "its links leave by port eth"),
        (("--topology", "t3000", "--sips", 4), "system.sips.count = 4: t3000 has 8 SIPs; leave the count out"),
    ],
)
def test_bad_systems_are_one_line(tmp_path: Path, flags: tuple[object, ...], line: str) -> None:
    with launching(*flags, RING, 1, cwd=tmp_path) as started:
        done = started.end()
    assert done.exit_code == 2
    assert line in done.stderr
    assert done.stderr.count("\n") == 1
