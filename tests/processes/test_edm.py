"""The data mover with a process for each chip: digest and data as in one process, also after a kill and a restart."""

from pathlib import Path

import pytest
from launch import CHECKOUT, Done, launching

SLICES = CHECKOUT / "docs/examples/tensix/slices.py"
MOVERS = CHECKOUT / "tests/inproc/helpers/data_movers.py"


def launch(folder: Path, *flags: object, script: tuple[object, ...] = (SLICES,)) -> Done:
    words = ("--set", "system.chip=wormhole", "--link", "ethernet_100g", "--sips", 2, "--topology", "ring_1d")
    with launching(*words, *flags, "--json", folder / "out.json", *script, cwd=folder) as started:
        return started.end()


VARIED = ("--jitter", 5, "--set", "system.chip_params.launch.start_skew_ns={1: 700}")


@pytest.mark.parametrize("system", [(), VARIED], ids=["usual", "with jitter and skew"])
@pytest.mark.parametrize("flags", [(), ("--max-restarts", 2, "--fault", "kill:1@5us")], ids=["as is", "killed"])
def test_two_processes_do_as_one(tmp_path: Path, system: tuple[object, ...], flags: tuple[object, ...]) -> None:
    alone = launch(tmp_path, "--engine", "inproc", *system)
    done = launch(tmp_path, "--engine", "local", *system, *flags)
    assert (alone.exit_code, done.exit_code) == (0, 0), alone.stderr + done.stderr
    assert done.digest == alone.digest
    assert "all as sent" in alone.stdout
    assert [rank["restarts"] for rank in done.document["ranks"]] == [0, int(bool(flags))]
    assert done.left_files == []


def test_data_movers_follow_one_another(tmp_path: Path) -> None:
    alone, done = (launch(tmp_path, "--engine", engine, script=(MOVERS, 20)) for engine in ("inproc", "local"))
    assert (alone.exit_code, done.exit_code) == (0, 0), alone.stderr + done.stderr
    assert done.digest == alone.digest
