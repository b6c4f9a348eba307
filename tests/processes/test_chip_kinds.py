"""A chip kind of a user's module on four processes: its digest, a death that is made good, a config that is refused."""

import json
from pathlib import Path

import pytest
from launch import Done, launching

CHECKOUT = Path(__file__).resolve().parents[2]
LABS = str(CHECKOUT / "tests/inproc/helpers")
PARAMS = {"cores": 4, "hop_ns": 2, "service_ns": 30}
LAPS = """
def worker(rank, world_size, chip):
    if rank == 0:
        chip.send(1, 2, 0)
    for _ in range(5):
        number = chip.recv()
        if number < 5 * world_size - 1:
            chip.send((rank + 1) % world_size, number % 4, number + 1)
"""


def launch(folder: Path, *flags: object, params: dict[str, int] = PARAMS) -> Done:
    script = folder / "laps.py"
    script.write_text(LAPS)
    chip = ["--set", "system.chip=lab.ring_chip", "--set", f"system.chip_params={json.dumps(params)}"]
    words = ("--sips", 4, "--topology", "torus_2d", *chip, *flags, "--json", folder / "out.json", script)
    with launching(*words, cwd=folder, PYTHONPATH=LABS) as started:
        return started.end()


@pytest.mark.parametrize("flags", [(), ("--max-restarts", 2, "--fault", "kill:2@0.3us")], ids=["as is", "killed"])
def test_four_processes_do_as_one(tmp_path: Path, flags: tuple[object, ...]) -> None:
    alone = launch(tmp_path, "--engine", "inproc")
    done = launch(tmp_path, "--engine", "local", *flags)
    assert (alone.exit_code, done.exit_code) == (0, 0), alone.stderr + done.stderr
    assert done.digest == alone.digest
    assert [rank["restarts"] for rank in done.document["ranks"]] == [0, 0, int(bool(flags)), 0]
    assert done.left_files == []


def test_a_bad_config_is_refused_before_anything_starts(tmp_path: Path) -> None:
    done = launch(tmp_path, "--engine", "local", params={"coers": 4, "hop_ns": 2, "service_ns": 30})
    assert done.exit_code == 2
    assert "unknown key 'coers' in system.chip_params; did you mean 'cores'?" in done.stderr
    assert not done.made_files
