"""``--oplog FILE``: all ranks' records as one file, a line each, a receive never before its send."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from runs import run, script_file

from launcher.options import parse
from launcher.report.files import Merge, write_logs, write_oplog
from sipsim.chips.ahbm.ipcq.records import RECV, SEND
from sipsim.chips.ahbm.pe.math import MATH
from sipsim.records.artifacts import make_artifact_folder, rank_folder
from sipsim.records.oplog import FIELDS, OPLOG_FILE, line

SMALL = ["--set", "sip.cube_mesh.w=2", "--set", "sip.cube_mesh.h=2", "--n-elem", 600]
RUNS: dict[str, list[object]] = {
    "ring": ["--sips", 3],
    "torus": ["--sips", 4, "--topology", "torus_2d"],
    "mesh": ["--sips", 4, "--topology", "mesh_2d_no_wrap", "--link", "ethernet_400g"],
    "rings in HBM": ["--sips", 2, "--set", "defaults.buffer_kind=hbm", "--set", "defaults.latch=in_place"],
    "one slot": ["--sips", 2, "--set", "defaults.n_slots=1", "-n", 2],
    "piggyback": ["--sips", 2, "--set", "defaults.credit_return_mode=piggyback"],
    "the ADRs' machine": ["--sips", 4, "--variant", "adr"],
}


def check_causality(lines: list[str]) -> int:
    """Every receive comes after the send of its message; how many there are."""
    sent: set[tuple[str, int]] = set()
    receives = 0
    for text in lines:
        rank, kind, *_ = text.split(" ")
        fields = dict(re.findall(r"(\w+)=(\S*)", text))
        if kind == "ipcq.send":
            assert fields["src"].split(".")[0] == rank
            sent.add((fields["addr"], int(fields["sender_seq"])))
        elif kind == "ipcq.recv":
            assert fields["dst"].split(".")[0] == rank
            assert (fields["addr"], int(fields["consumer_seq"]) - 1) in sent, text
            receives += 1
    return receives


@pytest.mark.parametrize("flags", RUNS.values(), ids=RUNS)
def test_each_ranks_records_in_order_and_receives_after_their_sends(flags: list[object], tmp_path: Path) -> None:
    file = tmp_path / "log.txt"
    done = run(*flags, *SMALL, "--oplog", file, keep_oplog=True)
    assert done.outcome.error is None
    lines = file.read_text().splitlines()
    assert check_causality(lines) == sum(
        record[0] == "ipcq.recv" for member in done.members for record in member.chip.sip.oplog.records
    )
    for member in done.members:
        own = [text.partition(" ")[2] for text in lines if text.startswith(f"{member.rank} ")]
        records = [text for text in own if not text.startswith(("host.", "control."))]
        assert records == [line(record).rstrip("\n") for record in member.chip.sip.oplog.records]
        assert len(own) > len(records)


WRITES = """
def worker(rank, world_size, torch):
    tensor = torch.zeros((4, 8), dtype="f16", dp=DPPolicy(num_cubes=4))
    tensor.fill_(rank)
"""


def test_what_the_host_writes(tmp_path: Path) -> None:
    """A line for each shard, with its values, at the place of its memory; it is in no digest."""
    file = tmp_path / "log.txt"
    flags = [*SMALL[:4], "--sips", 2, script_file(tmp_path, WRITES)]
    done = run("--oplog", file, *flags)
    assert done.outcome.error is None
    lines = [text for text in file.read_text().splitlines() if " host.write " in text]
    fields = [text.split(" ")[:6] for text in lines]
    assert sorted([*each[:2], *each[4:]] for each in fields) == [
        [str(rank), "host.write", str(cube), "0"] for rank in range(2) for cube in range(4)
    ]
    assert all(start == end != "0" for _, _, start, end, *_ in fields)
    (ones,) = {text.partition(" nbytes=")[2] for text in lines if text.startswith("1 ")}
    assert ones == "16 values=0x" + "003c" * 8
    assert done.results() == run(*flags).results()


def test_results_do_not_depend_on_it(tmp_path: Path) -> None:
    flags = [*RUNS["ring"], *SMALL]
    assert run(*flags, "--oplog", tmp_path / "log.txt").results() == run(*flags).results()


# --- the merge ----------------------------------------------------------------------------------------------------


def made_of(kind: str, end_ps: int, **fields: object) -> str:
    values = [fields.get(name, 0) for name in FIELDS[kind]]
    return line((kind, 0, end_ps, 0, 0, *values)).rstrip("\n")


def send(end_ps: int, addr: int, seq: int) -> str:
    return made_of(SEND, end_ps, addr=addr, sender_seq=seq)


def recv(end_ps: int, addr: int, seq: int) -> str:
    return made_of(RECV, end_ps, addr=addr, consumer_seq=seq + 1)


def merged(*logs: list[str]) -> tuple[list[str], list[int]]:
    merge = Merge()

    def lines(log: list[str]) -> Iterator[str]:
        yield from log

    found = [text.rstrip("\n") for text in merge.lines({rank: lines(log) for rank, log in enumerate(logs)})]
    return found, merge.unsent


SUM = made_of(MATH, 5)
MERGES: dict[str, tuple[list[list[str]], list[str], list[int]]] = {
    "by the time of ends": ([[made_of(MATH, 3), made_of(MATH, 9)], [SUM]], ["0 3", "1 5", "0 9"], []),
    "equal times by rank": ([[SUM], [SUM]], ["0 5", "1 5"], []),
    "a rank's order before time": ([[send(9, 1, 0), SUM], [made_of(MATH, 7)]], ["1 7", "0 9", "0 5"], []),
    "a receive waits": ([[recv(4, 1, 0), SUM], [send(8, 1, 0)]], ["1 8", "0 4", "0 5"], []),
    "for its own message": (
        [[recv(4, 1, 1)], [send(6, 1, 0), send(7, 2, 1), send(8, 1, 1), made_of(MATH, 9)]],
        ["1 6", "1 7", "1 8", "0 4", "1 9"],
        [],
    ),
    "each for the other": (
        [[send(1, 1, 0), recv(2, 2, 0)], [send(3, 2, 0), recv(4, 1, 0)]],
        ["0 1", "1 3", "0 2", "1 4"],
        [],
    ),
    "a lost send": ([[recv(4, 1, 0), SUM], [made_of(MATH, 9)]], ["1 9"], [0]),
}


@pytest.mark.parametrize("case", MERGES)
def test_the_merge(case: str) -> None:
    logs, expected, unsent = MERGES[case]
    lines, left = merged(*logs)
    assert [f"{text.split(' ')[0]} {text.split(' ')[3]}" for text in lines] == expected
    assert left == unsent


def put_logs(folder: Path, *logs: str) -> None:
    for rank, text in enumerate(logs):
        (make_artifact_folder(rank_folder(str(folder), rank)) / OPLOG_FILE).write_text(text)


def test_a_line_that_a_killed_process_has_left_incomplete_is_none(tmp_path: Path) -> None:
    put_logs(tmp_path, f"{SUM}\n{send(7, 1, 0)}"[:-3], f"{SUM}\n{recv(9, 1, 0)}\n")
    trouble = write_oplog(str(tmp_path), tmp_path / "log.txt")
    assert (tmp_path / "log.txt").read_text() == f"0 {SUM}\n1 {SUM}\n"
    assert trouble.endswith("the logs of ranks 1 end at receives whose sends are lost with a process")


def test_a_file_that_cannot_be_written(tmp_path: Path) -> None:
    put_logs(tmp_path, f"{SUM}\n")
    trouble = write_oplog(str(tmp_path), Path("/dev/full"))
    assert trouble == "--oplog /dev/full: No space left on device; the op log is incomplete"


def test_the_op_log_is_written_when_the_trace_cannot_be(tmp_path: Path) -> None:
    put_logs(tmp_path, f"{SUM}\n")
    full, file = Path("/dev/full"), tmp_path / "log.txt"
    options = parse(["--trace-ccl", str(full), "--oplog", str(file)])
    trace = "--trace-ccl /dev/full: No space left on device; the trace is incomplete"
    assert write_logs(str(tmp_path), options) == [trace]
    assert file.read_text() == f"0 {SUM}\n"
    oplog = "--oplog /dev/full: No space left on device; the op log is incomplete"
    assert write_logs(str(tmp_path), options.changed(oplog=full)) == [trace, oplog]
