"""A layer of products, GELU and an all-reduce in processes: digest, op log and second pass as in one process."""

from pathlib import Path

import pytest
from launch import Done, launching

MLP = Path(__file__).resolve().parents[2] / "scripts/benches/mlp.py"
SIZES = ("--tokens", 6, "--hidden", 10, "--ffn", 32, "--cubes", 2, "--pes", 2)
SYSTEM = ("--sips", 4, "--topology", "torus_2d", "--set", "sip.cube_mesh={w: 2, h: 1}")
OPLOG, RESULT = "oplog.txt", "out.json"


def layer(folder: Path, *flags: object) -> Done:
    folder.mkdir()
    with launching(*SYSTEM, *flags, "--oplog", OPLOG, "--json", folder / RESULT, MLP, *SIZES, cwd=folder) as started:
        return started.end()


@pytest.mark.parametrize("flags", [(), ("--max-restarts", 2, "--fault", "kill:2@0.5us")], ids=["as is", "killed"])
def test_four_processes_do_as_one(tmp_path: Path, flags: tuple[object, ...]) -> None:
    alone, done = layer(tmp_path / "one", "--engine", "inproc"), layer(tmp_path / "four", *flags)
    assert (alone.exit_code, done.exit_code) == (0, 0), alone.stderr + done.stderr
    assert done.digest == alone.digest
    logs = [(tmp_path / name / OPLOG).read_text() for name in ("one", "four")]
    assert logs[0] == logs[1]
    kinds = [kind for line in logs[0].splitlines() if not (kind := line.split()[1]).startswith("host.")]
    assert {*kinds} >= {"gemm", "math", "ipcq.send", "ipcq.recv"}
    assert [rank["restarts"] for rank in done.document["ranks"]] == [0, 0, int(bool(flags)), 0]
    second = done.document["second_pass"]
    assert second == alone.document["second_pass"]
    assert (second["differences"], second["races"], second["stopped"]) == (0, 0, "")
    assert second["records"] == len(kinds)
