"""Repeats a table of runs and compares each with its record: did a change of the program change what it does?

    python scripts/same_results                     all rows of rows.txt against record.jsonl
    python scripts/same_results 'tiles/*' meets     some: patterns of names, families, or the mark of rows that meet
    python scripts/same_results --record NAME ...   write these rows anew, after a change that was meant

The record has a line a row: exit codes, printed text, documents of ``--json``, and files that a run wrote or left.
A long text is its hash, a long list its length and its hash, an operation log its hash and its operations by kind.
Left out is what differs between equal runs or says how the simulator works: host times, process ids, counts of events
and grants; and how far ranks came in a run that failed while each had a process of its own, unless it is a deadlock.

A row is a line of ``rows.txt``: name, mark, why it is there, commands. With the mark ``meets`` transfers share an edge
at a time in it: a new rule for shares may move these rows and no others. Each command runs in a process of its own,
forked from this one, in a folder with copies of ``programs``, the examples and the benches. Needs the Python of an
environment with the dependencies.
"""

import argparse
import difflib
import fnmatch
import hashlib
import importlib
import json
import multiprocessing
import os
import re
import shlex
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
TABLE, RECORD, PROGRAMS = HERE / "rows.txt", HERE / "record.jsonl", HERE / "programs"
COPIES = {PROGRAMS: "", ROOT / "docs/examples": "examples", ROOT / "scripts/benches": "benches"}
MEETS = "meets"
STEP_S = 90
"""No command takes as long; one that does is killed, and its row fails."""
SHORT_TEXT, SHORT_JSON, FEW = 1200, 240, 4
"""Characters of a text that is kept as it is, and of a value of a document; entries of a list that are kept apart."""
SHOWN = 8
"""Keys of a row that are shown when they moved."""

COMMANDS = {
    "inproc": ("launch", "--engine=inproc"),
    "local": ("launch", "--engine=local"),
    **{name: (name,) for name in ("launch", "probe", "bench", "races")},
}
"""First words of the table: a function of ``ahbm_sim``, and flags."""
WITHOUT_JSON = ("races",)
OWN = ("stdout.txt", "stderr.txt", "json.json")
"""Files of each command: what it prints, and its document."""
WARM = (
    "launcher.commands.launch",
    "launcher.probe.command",
    "launcher.bench.command",
    "launcher.commands.races",
)
"""Imported once, before the first fork."""

Kept = dict[str, Any]
"""What is recorded of a row: the path of each value, and the value."""


class Row(NamedTuple):
    """A line of the table. ``commands`` follow one another in one folder."""

    name: str
    meets: bool
    why: str
    commands: tuple[str, ...]


def table() -> list[Row]:
    """All rows, in order."""
    rows, family = [], ""
    for line in TABLE.read_text().replace("\\\n", "").splitlines():
        if line.startswith("["):
            family = line.strip("[]")
        elif line and not line.startswith("#"):
            name, mark, why, commands = (" ".join(field.split()) for field in line.split("|", 3))
            assert mark in (MEETS, "-"), line
            rows.append(Row(f"{family}/{name}", mark == MEETS, why, tuple(commands.split(" ; "))))
    assert len({row.name for row in rows}) == len(rows), "two rows have one name"
    return rows


def chosen_of(rows: list[Row], words: list[str]) -> list[Row]:
    """The rows that some word names, or all."""

    def is_named(row: Row, word: str) -> bool:
        return row.meets if word == MEETS else fnmatch.fnmatchcase(row.name, word) or row.name.startswith(f"{word}/")

    return [row for row in rows if not words or any(is_named(row, word) for word in words)]


# --- what is kept of a run ----------------------------------------------------------------------------------------

OMITTED = re.compile("argv|version|schema|run_digest|events|sync|grants|pid|host|peak_pss_mib|[a-z]+_s")
"""Keys of documents that are not recorded. Host times end in ``_s``. A run digest holds within one version only."""
STOPPED_ANYWHERE = ("runs", "whole_run", "ranks", "launches", "second_pass", "no_effect")

VARYING = [
    (r"\b(ahbm-\w+) \d+\.\d+\.\d+", r"\1 ..."),
    (r"\b(plan|digest) [0-9a-f]{16,}", r"\1 ..."),
    (r"\b([0-9a-f]{16})[0-9a-f]{48}\b", r"\1"),
    (r"\bpid \d+", "pid ..."),
    (r"\bgranted to [^ ]+ [pnum]?s\b", "granted to ..."),
    (r"\b[\d,]+ (events|grants)\b", r"... \1"),
    (r"\b[\d.]+ s CPU, [\d.]+ MiB", "... s CPU, ... MiB"),
    (r"\bno progress for [\d.]+ s\b", "no progress for ... s"),
    (r"\b[\d.]+ s of wall time; [\d.]+ MiB\b", "... s of wall time; ... MiB"),
    (r"(?m)^ahbm-launch: stalled: .*\n(?:  .*\n)*", ""),
    (r"\bsipsim([./])(?:chips\1ahbm\1)?collectives\1algorithms\b", r"sipsim\1ccl\1algorithms"),
    (r'File "<tree>/[^"]+", line \d+, in \w+', 'File "<tree>/...", line ..., in ...'),
    (r"(<tree>/[\w/]+\.py|\balgorithms/\w+\.py):\d+", r"\1:..."),
]
"""Patterns in texts that differ between equal runs, count events, are lines of the program's own files, or say where
built-in algorithms lie (their label in digests stands for that); and what takes their place. Digests stand in the
documents."""


def normalised(text: str, folder: Path) -> str:
    """A text without what differs between equal runs."""
    text = text.replace(str(folder), "<folder>").replace(str(ROOT), "<tree>")
    for pattern, instead in VARYING:
        text = re.sub(pattern, instead, text)
    return text


def kept_text(text: str, folder: Path) -> str:
    """A text, or the number of its lines and its hash if it is long.

    Lines of ranks come in the order in which their processes ran; here rank by rank, before the others.
    """
    lines = sorted(normalised(text, folder).splitlines(), key=_rank_of)
    text = "\n".join(lines)
    return text if len(text) <= SHORT_TEXT else f"{len(lines)} lines {digest(text)}"


def _rank_of(line: str) -> int:
    found = re.match(r"\[rank (\d+)\] ", line)
    return int(found[1]) if found else sys.maxsize


def digest(text: str) -> str:
    """The first half of a SHA-256."""
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def kept_json(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    """The values of a document by path.

    A short part is one value. A list of records gives a value for each of its keys: the column, or the one value that
    all records share. Another long list gives its length and its hash.
    """
    text = json.dumps(value, sort_keys=True)
    if not isinstance(value, dict | list) or len(text) <= SHORT_JSON:
        yield path, value
    elif isinstance(value, dict) and not path.endswith(".config"):
        for key, each in value.items():
            yield from kept_json(f"{path}.{key}", each)
    elif isinstance(value, list) and len(value) > 1 and all(isinstance(each, dict) for each in value):
        for key in dict.fromkeys(key for each in value for key in each):
            column = [each.get(key) for each in value]
            yield from kept_json(f"{path}[].{key}", column if any(each != column[0] for each in column) else column[0])
    elif isinstance(value, list) and len(value) <= FEW:
        for number, each in enumerate(value):
            yield from kept_json(f"{path}.{number}", each)
    else:
        yield path, f"{len(value)} entries {digest(text)}"


def lasting(value: Any, folder: Path) -> Any:
    """A part of a document without keys that are not recorded, and with normalised texts."""
    if isinstance(value, list):
        return [lasting(each, folder) for each in value]
    if isinstance(value, dict):
        kept = {key: lasting(each, folder) for key, each in value.items() if not OMITTED.fullmatch(key)}
        if str(kept.get("file", "")).startswith("<tree>"):
            kept.pop("line", None)
        return {key: each for key, each in kept.items() if each not in (None, [], {}, "")}
    return normalised(value, folder) if isinstance(value, str) else value


def kept_document(path: str, document: Any, folder: Path) -> Iterator[tuple[str, Any]]:
    """The result of a command, or another JSON file."""
    if isinstance(document, dict) and document.get("status") == "failed" and document.get("engine") != "inproc":
        error = document.get("error") or {}
        if error.get("kind") not in ("IpcqDeadlock", "Deadlock", "wrong_numbers", "config"):
            document = {key: each for key, each in document.items() if key not in STOPPED_ANYWHERE}
    yield from kept_json(path, lasting(document, folder))


def kept_file(path: str, file: Path, folder: Path) -> Iterator[tuple[str, Any]]:
    """A file that a command wrote."""
    if file.suffix == ".json":
        yield from kept_document(path, json.loads(file.read_text()), folder)
    elif file.suffix == ".oplog":
        lines = file.read_text().splitlines()
        yield f"{path}.kinds", dict(Counter(line.split(maxsplit=2)[1] for line in lines))
        yield path, f"{len(lines)} lines {digest(file.read_text())}"
    elif file.suffix in (".csv", ".txt", ".log", ".svg"):
        yield path, kept_text(file.read_text(), folder)
    else:
        yield path, "exists"


# --- running ------------------------------------------------------------------------------------------------------


def observe(row: Row) -> Kept | str:
    """Run a row's commands; what is recorded of them, or why there is nothing."""
    # Not the system's own choice, whose name may be too long for sockets.
    with tempfile.TemporaryDirectory(prefix="same-", dir="/tmp") as name:
        folder = Path(name)
        for source, to in COPIES.items():
            shutil.copytree(source, folder / to, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
        (folder / "tmp").mkdir()
        kept: Kept = {}
        known = files_of(folder)
        for number, command in enumerate(row.commands):
            code = run_forked(command, folder)
            if code is None:
                return f"{command} has not ended after {STEP_S} s"
            kept[f"{number}.exit"] = code
            try:
                for file in sorted(files_of(folder) - known):
                    is_own = file.parent == folder and file.name in OWN
                    path = file.stem if is_own else file.relative_to(folder)
                    kept.update(kept_file(f"{number}.{path}", file, folder))
                    if is_own:
                        file.unlink()
            except (ValueError, IndexError, OSError) as error:
                return f"{command}: {error}"
            known = files_of(folder)
    return kept


def files_of(folder: Path) -> set[Path]:
    """All that is below a folder, sockets too, but for folders and Python's caches."""
    return {path for path in folder.rglob("*") if not path.is_dir() and "__pycache__" not in path.parts}


def run_forked(command: str, folder: Path) -> int | None:
    """The exit code of a command in a process of its own; None if it had to be killed."""
    process = multiprocessing.get_context("fork").Process(target=_command, args=(command, folder))
    process.start()
    process.join(STEP_S)
    if process.is_alive():
        os.killpg(process.pid or 0, signal.SIGKILL)
        process.join()
        return None
    return process.exitcode


def _command(command: str, folder: Path) -> None:
    """In the new process: the command with files for what it prints; ends the process with its exit code."""
    os.setsid()
    os.chdir(folder)
    for number, name in enumerate(("/dev/null", *OWN[:2])):
        os.dup2(os.open(name, os.O_RDWR | os.O_CREAT), number)
    sys.stdout, sys.stderr = (open(number, "w", closefd=False) for number in (1, 2))  # noqa: SIM115
    os.environ.update(TMPDIR=f"{folder}/tmp", AHBM_SSH=f"{folder}/ssh.sh")
    tempfile.tempdir = None
    word, *rest = shlex.split(command)
    function, *flags = COMMANDS[word]
    if function not in WITHOUT_JSON and "--json" not in rest:
        flags += ["--json", OWN[2]]
    # A bench takes its name first.
    at = 1 if function == "bench" else 0
    sys.argv = [f"ahbm-{function}", *rest[:at], *flags, *rest[at:]]
    sys.path[0] = str(ROOT)
    sys.exit(getattr(importlib.import_module("ahbm_sim"), function)())


def prepare() -> None:
    """This checkout's code, imported, and nothing of the caller's that changes a run."""
    for name in [each for each in os.environ if each.startswith(("AHBM_", "PYTHON"))]:
        del os.environ[name]
    os.environ.update(PYTHONPATH=str(ROOT), COLUMNS="100", LC_ALL="C.UTF-8")
    sys.path.insert(0, str(ROOT))
    for module in WARM:
        found = importlib.import_module(module).__file__ or ""
        assert found.startswith(f"{ROOT}/"), f"{module} is {found}"


def observed(rows: list[Row], jobs: int) -> Iterator[tuple[Row, Kept | str]]:
    """Run rows, some at a time; in the order of the table."""
    with ProcessPoolExecutor(jobs, multiprocessing.get_context("fork")) as pool:
        yield from zip(rows, pool.map(observe, rows), strict=True)


# --- comparing ----------------------------------------------------------------------------------------------------


def read_record() -> dict[str, Kept]:
    """The record: what is kept of each row, by name."""
    lines = RECORD.read_text().splitlines() if RECORD.exists() else []
    return {each["row"]: each["kept"] for each in map(json.loads, lines)}


def write_record(record: dict[str, Kept]) -> None:
    """A line a row, in the order of the names."""
    lines = [json.dumps({"row": name, "kept": record[name]}, sort_keys=True) for name in sorted(record)]
    RECORD.write_text("\n".join(lines) + "\n")


def differences(before: Kept | None, after: Kept | str) -> list[str]:
    """What moved, a key a line."""
    if isinstance(after, str):
        return [f"failed: {after}"]
    if before is None:
        return ["is not recorded; --record writes it"]
    missing = "(none)"
    moved = [key for key in sorted(before.keys() | after.keys()) if before.get(key, missing) != after.get(key, missing)]
    return [moved_key(key, before.get(key, missing), after.get(key, missing)) for key in moved]


def moved_key(key: str, before: Any, after: Any) -> str:
    """A key with both values; of two texts the lines that differ."""
    if isinstance(before, str) and isinstance(after, str) and "\n" in before + after:
        pairs = difflib.ndiff(before.splitlines(), after.splitlines())
        return "\n".join([f"{key}:", *(f"    {line}" for line in pairs if line[0] in "+-")])
    return f"{key}: {json.dumps(before)} -> {json.dumps(after)}"


def check(rows: list[Row], jobs: int) -> int:
    """Compare rows with the record; the exit status."""
    record, count = read_record(), 0
    for row, after in observed(rows, jobs):
        moved = differences(record.get(row.name), after)
        if moved:
            count += 1
            mark = f" [{MEETS}]" if row.meets else ""
            print(f"{row.name}{mark}: {row.why}: {len(moved)} moved")
            print("\n".join(f"  {each}" for each in moved[:SHOWN]))
            if len(moved) > SHOWN:
                print(f"  and {len(moved) - SHOWN} more")
            sys.stdout.flush()
    print(f"{len(rows)} rows, {count} differ")
    return int(count > 0)


def record_anew(rows: list[Row], jobs: int) -> int:
    """Write the record of these rows, and leave that of others as it is; the exit status."""
    record, names = read_record(), {row.name for row in table()}
    results = dict(observed(rows, jobs))
    failed = [f"{row.name}: failed: {kept}" for row, kept in results.items() if isinstance(kept, str)]
    if failed:
        print("\n".join([*failed, f"{len(failed)} of {len(rows)} rows failed; nothing is recorded"]))
        return 1
    record |= {row.name: kept for row, kept in results.items() if isinstance(kept, dict)}
    write_record({name: kept for name, kept in record.items() if name in names})
    print(f"{len(rows)} rows recorded in {RECORD}")
    return 0


def main() -> int:
    """Compare, or record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="patterns of rows, families, or 'meets' (all rows)")
    parser.add_argument("--record", action="store_true", help="write the record anew")
    parser.add_argument("--jobs", type=int, default=2, metavar="N", help="rows at a time (2)")
    parser.add_argument("--list", action="store_true", help="print the rows, and run nothing")
    chosen = parser.parse_args()
    rows = chosen_of(table(), chosen.names)
    if chosen.list or not rows:
        print("\n".join(f"{row.name}: {row.why}" for row in rows) if rows else "no row has such a name")
        return int(not rows)
    began_s = time.monotonic()
    prepare()
    status = (record_anew if chosen.record else check)(rows, chosen.jobs)
    print(f"{time.monotonic() - began_s:.0f} s", file=sys.stderr)
    return status


if __name__ == "__main__":
    sys.exit(main())
