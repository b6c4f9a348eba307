"""Every key of real result files is on the page of fields, with its type, and every entry of the page is in a file."""

import csv
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from launch import ALL_REDUCE, launched, script
from outcomes import rank_outcome

from broker.wire import PeerLost
from launcher.api import run
from launcher.commands import launch
from launcher.options import Options, parse
from launcher.probe import command as probe
from launcher.processes.fork_server import ProcessStarted
from launcher.report.checks import note_verdicts
from launcher.report.failure import error_file_of
from launcher.report.outcome import ErrorFile, Outcome, RunError
from launcher.result import document as result
from launcher.result.fields import (
    HardwareDocument,
    LinkCsvRow,
    MatrixDocument,
    MatrixRow,
    ProbeDocument,
    ResultDocument,
    RunEntry,
    RunRow,
    SizePoint,
    SweepDocument,
)
from launcher.result.page import DOCUMENTS, page
from launcher.run.prepare import prepare
from launcher.supervise.facts import BrokerListens, Fail, HostGone, HostJoined, HostSpec, ProcessEvent, Tick
from launcher.supervise.positions import NO_ANSWER, positions_of
from launcher.supervise.ranks import EXPLAIN_S
from launcher.supervise.supervisor import Supervisor
from sipsim.core.fields import FieldLine, columns_of, fields_of
from sipsim.insight.hangs.deadlock import explain_deadlock
from sipsim.records.dump import NOT_STARTED, BlockedResource, SipDump, TaskState
from sipsim.records.oplog import TraceLine
from sipsim.records.replay import Difference, Verdict

# One worker has all of them, so that the documents are made once.
pytestmark = [pytest.mark.processes, pytest.mark.xdist_group("result fields")]

FLAGS = ("--sips", "2", "--set", "sip.cube_mesh.w=2", "--set", "sip.cube_mesh.h=2")
SMALL: Any = {"sips": 2, "set": ["sip.cube_mesh.w=2", "sip.cube_mesh.h=2"], "engine": "inproc"}
JSON_TYPES = {int: "integer", float: "number", str: "string", bool: "boolean", dict: "object"}
JSON_TYPES |= dict.fromkeys((list, tuple), "array")

PRODUCT = """
square = lambda t, tl: tl.store(t, tl.dot(tl.load(t, (4, 8)), tl.load(t, (8, 4))).to("f16"))
done = torch.launch(square, torch.ones(4, 8, dp=DPPolicy(num_cubes=1)), cubes=0, pes=1, async_op=True)
"""
SCRIPTS = {
    "products": f"{PRODUCT}done.wait()",
    "products beside a collective": f"{PRODUCT}{ALL_REDUCE}",
    "script": ALL_REDUCE,
    "exception": "raise ValueError('no')",
    "wrong direction": "torch.launch(lambda t, tl: tl.send('nowhere', tl.load(t, 1)), torch.zeros(4, 8))",
    "deadlock": "torch.launch(lambda tl: tl.recv('E', 1, 'f16') if tl.has_direction('E') else None)",
    "unread": "torch.launch(lambda t, tl: tl.send('global_E', tl.load(t, 1)), torch.zeros(4, 8))",
    "hung": "torch.launch(lambda tl: exec('while True: pass'))",
}
"""Bodies of workers."""
MMU = "pe_mmu={page_KiB: 64, tlb_entries: 4, walk_ns: 200, virtual_rings: true}"
WITH_MMU: Any = {**SMALL, "set": [*SMALL["set"], MMU]}
SLOW_STACK: Any = {**SMALL, "set": [*SMALL["set"], "hbm.bandwidth_GBps=0.001"]}
"""Its ports of HBM bind what little a run moves."""
SCRIPT_FLAGS: dict[str, Any] = {
    "products": SLOW_STACK,
    # Timed copies of the collective's tensors would last longer than the product.
    "products beside a collective": {**SMALL, "set": [*SMALL["set"], "host_copies=free"]},
    "script": WITH_MMU,
    "unread": {**WITH_MMU, "check_invariants": True},
    "hung": {"progress_timeout": 1},
}
TABLES = (RunRow, LinkCsvRow, TraceLine, SizePoint, MatrixRow)
"""Records of files of CSV, whose values are text."""

Told = tuple[type, Any]
"""The record of a document, and the document."""


def paths(told: Any, record: type, prefix: str = "") -> Iterator[tuple[str, str]]:
    """Each key of a document as the page writes it, with the type of its value."""
    is_open = {line.path for line in fields_of(record) if line.is_open}
    if isinstance(told, list | tuple):
        for each in told:
            yield from paths(each, record, f"{prefix}[]")
    elif isinstance(told, dict):
        for key, value in told.items():
            path = f"{prefix}.{key}" if prefix else key
            yield path, JSON_TYPES.get(type(value), "null")
            if path not in is_open:
                yield from paths(value, record, path)


def from_scripts(folder: Path) -> Iterator[tuple[str, Told]]:
    """Runs in this process."""
    for name, body in SCRIPTS.items():
        (folder / name).mkdir()
        logs = folder / name / "logs"
        files = {"json": folder / name / "out.json", "log_dir": logs}
        run(script(folder / name, body), **{**SMALL, **SCRIPT_FLAGS.get(name, {})}, **files)
        yield name, (ResultDocument, json.loads(files["json"].read_text()))
        if (logs / "error.json").exists():
            yield f"{name}, error.json", (ErrorFile, json.loads((logs / "error.json").read_text()))


def from_processes(folder: Path) -> Iterator[tuple[str, Told]]:
    """Runs of processes that fail, or are stopped."""
    runs: dict[str, tuple[object, ...]] = {
        "ok": ("--bytes", "1K"),
        "outage": ("--bytes", "1K", "--link", "ethernet_100g", "--fault", "link:0.E@1us:1us"),
        "killed": ("--fault", "kill:1@1us"),
        "left": ("--fault", "exit:1@1us:7"),
        "not joined": ("--fault", "hang:1@join", "--join-timeout", "1"),
        "interrupted": ("--timeout", "1", script(folder, "while True: pass")),
        "refused": ("--sipz",),
    }
    for name, flags in runs.items():
        logs = folder / f"{name} logs"
        done = launched(*FLAGS, "--json", folder / f"{name}.json", "--log-dir", logs, *flags)
        yield name, (ResultDocument, done.document)
        if (logs / "error.json").exists():
            yield f"{name}, error.json", (ErrorFile, json.loads((logs / "error.json").read_text()))


def supervised(*facts: Any) -> RunError:
    """The failure that a supervisor of two hosts makes of facts."""
    supervisor = Supervisor(4, Options(), [HostSpec("a", 2), HostSpec("b", 2)], 0.0)
    commands = []
    started = (ProcessEvent(-1, ProcessStarted(None, 0, 1)), BrokerListens(), HostJoined(0), HostJoined(1))
    for at_s, fact in enumerate((*started, *facts)):
        take = supervisor.note if isinstance(fact, PeerLost) else supervisor.handle
        commands += take(fact, float(at_s))
    return next(command.error for command in commands if isinstance(command, Fail))


def from_dumps() -> dict[str, RunError]:
    """Kernels that have not started, where a run is stopped and in a deadlock, with a channel that is blocked; a rank
    that does not answer.
    """
    kernel = TaskState((0, 1, 0), "cube 1, PE 0", NOT_STARTED, "", ())
    dump = SipDump(0, 5, (), (kernel,), blocked=(BlockedResource("SIP 0 eth0", "SIP 0 eth0", "full"),))
    stopped = positions_of([0, 1], {0: dump}, {}, NO_ANSWER, "")
    deadlock = explain_deadlock([msgspec.json.encode(dump)])
    return {
        "stopped": RunError("timeout", None, "stopped", facts={"positions": stopped.facts}),
        "no start": RunError("IpcqDeadlock", None, "nothing can happen", facts={"deadlock": deadlock.facts}),
    }


def from_second_pass() -> RunError:
    """A record whose values differ between the passes."""
    outcome = Outcome(1)
    found = Difference(number=3, record="math 1 2 ...", cube=0, pe=1, time_ps=2, message="record 3 ...")
    outcome.ranks = {0: rank_outcome(0, verdict=Verdict(records=5, differences=1, difference=found))}
    note_verdicts(outcome)
    assert outcome.error is not None
    return outcome.error


def from_facts() -> Iterator[tuple[str, Told]]:
    """What no test can bring about on one host: lost hosts and connections, and a kernel short of memory."""
    prepared = prepare(parse(list(FLAGS)))
    short = RunError("process_died", 1, "killed", facts={"signal": "SIGKILL", "pid": 7})
    ticks = [Tick() for _ in range(int(EXPLAIN_S) + 2)]
    errors = {
        "short of memory": short,
        "lost host": supervised(HostGone(1, "host_lost", "host b is lost: silent")),
        "lost connection": supervised(PeerLost(0, 3, "no answer"), *ticks),
    }
    errors |= {**from_dumps(), "second pass": from_second_pass()}
    for name, error in errors.items():
        outcome = Outcome(2)
        outcome.ranks = {0: rank_outcome(0)}
        outcome.oom_kills, outcome.host = 1, "here"
        outcome.fail(error)
        outcome.fail(RunError("exception", 0, "later"))
        yield name, (ResultDocument, result.build(prepared, [], outcome))
        yield f"{name}, error.json", (ErrorFile, error_file_of(outcome))


def from_tables(folder: Path) -> Iterator[tuple[str, Told]]:
    """Rows of tables, and the explanation of the same run."""
    files = {"csv": folder / "a.csv", "csv_links": folder / "links.csv", "trace_ccl": folder / "trace.csv"}
    run(**SLOW_STACK, bytes="1K", explain=True, explain_reruns=1, json=folder / "explained.json", **files)
    yield "explained", (ResultDocument, json.loads((folder / "explained.json").read_text()))
    run(script(folder, ALL_REDUCE), **SMALL, csv_links=folder / "of a script.csv")
    tables = {**dict(zip(files.values(), TABLES, strict=False)), folder / "of a script.csv": LinkCsvRow}
    for path, record in tables.items():
        yield path.name, (record, first_row(path))


def first_row(path: Path) -> dict[str, str]:
    with path.open(newline="") as file:
        return next(csv.DictReader(file))


def from_probe(folder: Path) -> Iterator[tuple[str, Told]]:
    for name, to, *flags in (("inside", "0.1.0"), ("across", "1.0.0"), ("mmu", "1.0.0", "--set", MMU)):
        assert probe.main(["--from", "0.0.0", "--to", to, "--json", str(folder / name), *flags]) == 0
        yield name, (ProbeDocument, json.loads((folder / name).read_text()))
    assert probe.main(["--hardware", "--json", str(folder / "hardware")]) == 0
    yield "hardware", (HardwareDocument, json.loads((folder / "hardware").read_text()))
    others = {
        "sweep": (SweepDocument, SizePoint, ["--from", "0.0.0", "--to", "1.0.0", "--sweep-bytes", "2K:8K"]),
        "matrix": (MatrixDocument, MatrixRow, ["--matrix", "sips"]),
    }
    for name, (record, row, words) in others.items():
        files = [str(folder / f"{name}.{kind}") for kind in ("json", "csv")]
        assert probe.main([*words, "--json", files[0], "--csv", files[1]]) == 0
        yield name, (record, json.loads(Path(files[0]).read_text()))
        yield f"{name}, csv", (row, first_row(Path(files[1])))


@pytest.fixture(scope="module")
def documents(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Told]:
    folder = tmp_path_factory.mktemp("documents")
    makers = (from_scripts(folder), from_processes(folder), from_facts(), from_tables(folder), from_probe(folder))
    return {name: told for maker in makers for name, told in maker}


def test_the_runs_ended_as_they_should(documents: dict[str, Told]) -> None:
    """So that the documents are those of failures of each kind."""
    ended = {name: (told.get("error") or {}).get("kind") for name, (record, told) in documents.items()}
    assert {name: kind for name, kind in ended.items() if "error.json" not in name and kind} == {
        "exception": "exception",
        "wrong direction": "IpcqInvalidDirection",
        "deadlock": "IpcqDeadlock",
        "unread": "IpcqUnreadMessages",
        "hung": "hung",
        "killed": "process_died",
        "left": "process_died",
        "not joined": "not_joined",
        "interrupted": "timeout",
        "refused": "config",
        "short of memory": "process_died",
        "lost host": "host_lost",
        "lost connection": "peer_lost",
        "second pass": "wrong_numbers",
        "stopped": "timeout",
        "no start": "IpcqDeadlock",
    }


def test_every_key_is_on_the_page_with_its_type(documents: dict[str, Told]) -> None:
    for name, (record, told) in documents.items():
        known = {line.path: line for line in fields_of(record)}
        for path, kind in paths(told, record):
            assert path in known, f"{name}: {path} is not described"
            assert record in TABLES or fits(kind, known[path]), f"{name}: {path} is {kind}"


def fits(kind: str, line: FieldLine) -> bool:
    return kind in line.types.split(" or ") or (kind == "integer" and "number" in line.types)


def test_every_key_that_is_not_optional_is_in_every_document(documents: dict[str, Told]) -> None:
    for name, (record, told) in documents.items():
        always = {line.path for line in fields_of(record) if not line.is_optional and "." not in line.path}
        assert always <= set(told), name


@pytest.mark.parametrize("kind", DOCUMENTS, ids=[kind.written_by for kind in DOCUMENTS])
def test_every_entry_of_the_page_is_in_some_document(documents: dict[str, Told], kind: Any) -> None:
    made = {path for record, told in documents.values() if record is kind.record for path, _ in paths(told, record)}
    assert {line.path for line in fields_of(kind.record)} == made


def test_the_page_is_a_list_of_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert launch.main(["--list", "fields"]) == 0
    assert capsys.readouterr().out == page() + "\n"


def test_keys_come_in_the_order_of_the_page(documents: dict[str, Told]) -> None:
    for name in ("ok", "refused", "explained", "script"):
        _, told = documents[name]
        assert list(told) == list(columns_of(ResultDocument)), name
        for row in told["runs"]:
            assert [*row, "stack"] == [*columns_of(RunEntry)] or list(row) == [*columns_of(RunEntry)], name
