"""The second pass and ``--oplog`` in processes of their own: the same as in one process, and after a restart."""

from pathlib import Path
from typing import Any

import pytest
from launch import Done, launched

pytestmark = pytest.mark.processes

SMALL = ("--sips", 3, "--set", "sip.cube_mesh.w=2", "--set", "sip.cube_mesh.h=2", "--bytes", "16K")
ENGINES = ("inproc", "local")
WRONG = """
from sipsim.chips.ahbm.pe.{module} import {engine} as Engine

end, turns = Engine._end, {{}}

def wrong_end(self, completion, kind, *fields, work=()):
    turn = turns[self._sip.sip] = turns.get(self._sip.sip, 0) + hasattr(completion.command, "result")
    if turn == 3 and self._sip.sip == 1:
        array = completion.command.result.array.copy()
        array[5] += 1
        completion.command.result.array = array
    end(self, completion, kind, *fields, work=work)

def worker(rank, world_size, torch):
    if rank == 1:
        Engine._end = wrong_end
    dist = torch.distributed
    dist.init_process_group()
    tensor = torch.zeros((4, 64), dtype="f16", dp=DPPolicy(num_cubes=4))
    tensor.fill_(rank + 1)
    dist.all_reduce(tensor)
    if rank == 1:
        Engine._end = end
"""


def with_error(folder: Path, engine: str, module: str, name: str) -> Done:
    script = folder / "wrong.py"
    script.write_text(WRONG.format(module=module, engine=name))
    file = folder / f"{engine}.json"
    return launched(*SMALL[:6], "--engine", engine, "--json", file, script)


@pytest.mark.parametrize(("module", "name", "kind"), [("math", "PeMath", "math"), ("dma", "PeDma", "dma_read")])
def test_a_wrong_result_of_an_engine_is_named(module: str, name: str, kind: str, tmp_path: Path) -> None:
    told = []
    for engine in ENGINES:
        done = with_error(tmp_path, engine, module, name)
        assert done.exit_code == 1, done.stderr
        error = done.document["error"]
        assert (error["kind"], error["rank"]) == ("wrong_numbers", 1)
        assert error["record_text"].startswith(f"{kind} ")
        assert f"record {error['record']} ({error['record_text']}) of cube {error['cube']} PE 0" in error["message"]
        assert "1 of 64 wrong, the first at [5]: expected " in error["message"]
        assert done.stderr.count("second pass: ") == 1
        assert done.document["second_pass"]["differences"] == 1
        told.append({key: value for key, value in error.items() if key != "also"})
    assert told[0] == told[1]


def logged(file: Path, *flags: Any) -> Done:
    done = launched(*SMALL, *flags, "--oplog", file, "--json", file.with_suffix(".json"))
    assert done.exit_code == 0, done.stderr
    return done


@pytest.mark.parametrize(
    "flags",
    [("--engine", "inproc"), ("--max-restarts", 1, "--fault", "kill:1@2us"), ("--mail", "zmq")],
    ids=lambda flags: flags[1] if len(flags) == 2 else "killed",
)
def test_logs_and_verdicts_are_the_same_everywhere(flags: tuple[object, ...], tmp_path: Path) -> None:
    usual, other = logged(tmp_path / "a.txt", "--engine", "local"), logged(tmp_path / "b.txt", *flags)
    assert (tmp_path / "a.txt").read_bytes() == (tmp_path / "b.txt").read_bytes()
    assert usual.document["second_pass"] == other.document["second_pass"]
    assert usual.document["second_pass"]["records"] == 87
    assert usual.digest == other.digest == launched(*SMALL, "--no-verify-data").digest


def test_doorbells_of_a_rank_that_is_killed(tmp_path: Path) -> None:
    """Acknowledgements and doorbells between processes are sent again as they were."""
    usual = logged(tmp_path / "a.txt", "--variant", "doorbell")
    killed = "--max-restarts", 1, "--fault", "kill:1@3us", "--check-invariants"
    other = logged(tmp_path / "b.txt", "--variant", "doorbell", *killed)
    assert sum(rank["restarts"] for rank in other.document["ranks"]) == 1
    assert (tmp_path / "a.txt").read_bytes() == (tmp_path / "b.txt").read_bytes()
    assert usual.digest == other.digest


def test_without_verification_there_is_no_second_pass(tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    assert launched(*SMALL, "--no-verify-data", "--json", file).document["second_pass"] is None


def test_to_standard_output_in_place_of_the_table(tmp_path: Path) -> None:
    logged(tmp_path / "a.txt")
    assert launched(*SMALL, "--oplog", "-").stdout == (tmp_path / "a.txt").read_text()


ENDS = {
    "a killed process": ("import os; os.kill(os.getpid(), 9)", 4),
    "an exception": ("raise ValueError('no')", 5),
    "a deadlock": ("torch.launch(lambda tl: tl.recv('W', 8, 'f16'))", 3),
}


@pytest.mark.parametrize("end", ENDS)
def test_a_run_that_fails_writes_what_there_is(end: str, tmp_path: Path) -> None:
    line, code = ENDS[end]
    script = tmp_path / "ends.py"
    script.write_text(
        "def worker(rank, world_size, torch):\n"
        "    torch.distributed.init_process_group()\n"
        "    torch.distributed.all_reduce(torch.ones((4, 8), dtype='f16', dp=DPPolicy(num_cubes=4)))\n"
        f"    if rank == 1:\n        {line}\n"
        "    torch.distributed.all_reduce(torch.ones((4, 8), dtype='f16', dp=DPPolicy(num_cubes=4)))\n"
    )
    file = tmp_path / "log.txt"
    done = launched(*SMALL[:6], "--no-verify-data", "--oplog", file, script)
    assert done.exit_code == code, done.stderr
    lines = file.read_text().splitlines()
    assert {text.split(" ")[0] for text in lines} == {"0", "1", "2"}
    assert sum(" dma_write " in text for text in lines) >= 12


def test_a_file_that_cannot_be_written() -> None:
    done = launched(*SMALL, "--oplog", "/dev/full")
    assert done.exit_code == 4
    assert "--oplog /dev/full: No space left on device; the op log is incomplete" in done.stderr
