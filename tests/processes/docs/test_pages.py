"""README and the pages of ``docs`` are true: their files are written, their commands run and print what they show.

A fenced block is ``console`` (commands after ``$``, each with its whole output), ``sh`` (commands that must succeed,
whatever they print), a file (``python`` or ``yaml`` that begins with ``# NAME``, ``, continued`` where it adds to one),
or ``text``, which is shown and not run; the output of a command in it has a test of its own (``SHOWN``). Blocks of a
section run in order, in a folder of their own, with the files of all sections before. The default config is in force,
as for users.

``python tests/processes/docs/test_pages.py --refresh [PAGE...]`` runs all pages, or those named, and writes what comes
out into their console blocks.
"""

import importlib.metadata
import os
import re
import signal
import subprocess
import sys
import tempfile
import unicodedata
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[3]
GENERATED = {"docs/validation.md"}
PATHS = [ROOT / name for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md")]
PATHS += sorted((ROOT / "docs").rglob("*.md"))
PAGES = {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8") for path in PATHS}
COMMANDS = {
    "ahbm-launch": "launcher",
    "ahbm-probe": "launcher.probe.command",
    "ahbm-bench": "launcher.bench.command",
    "ahbm-races": "launcher.commands.races",
    "python": "",
}
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)
LINK = re.compile(r"\]\(([^)\s]+)\)")
FILE_NAME = re.compile(r"# ([\w./]+?)(, continued)?\n")
SHOWN = {
    "docs/clusters.md": ["$ ahbm-broker --tickets tickets --bind 10.0.0.1 --sips 2"],
    "docs/output.md": ["ahbm-launch: 82%, simulated", "$ ahbm-launch --sips 2 --bytes 8M & sleep 2; kill -USR1 $!"],
}
"""How the text blocks begin that show an output, by page. Two tests below run them."""
MASKED = (
    (re.compile(r"^ahbm-launch: (?:stalled: |moves again after ).*\n(?:  .*\n)*", re.MULTILINE), ""),
    (re.compile(r"\bpid \d+"), "pid N"),
    (re.compile(r"\b\d+(\.\d+)? s\b"), "T s"),
    (re.compile(r"\bhost [\w.-]+"), "host H"),
    (re.compile(r"\b\d+ MiB in\b"), "N MiB in"),
    (re.compile(r" beside what else loads this host \(.*?\)"), ""),
    (re.compile(r"at [\d.]+ \w+ of simulated time, granted to [\d.]+ \w+"), "at T, granted to T"),
)
"""Warnings of a stall, which a busy machine may bring; pids, wall times, host names, memory of the host, and where
a killed process stood when it was last heard of."""

pytestmark = pytest.mark.processes


class Block(NamedTuple):
    """A fenced block: its kind, its text, where that starts in the page, and the heading above it."""

    kind: str
    body: str
    start: int
    section: str


class Shown(NamedTuple):
    """A command of a page, and the output that the page shows."""

    command: str
    output: str


def blocks(text: str) -> list[Block]:
    """All fenced blocks, in order. A ``#`` inside a block is no heading."""
    inside = [found.span() for found in BLOCK.finditer(text)]
    headings = [
        (found.start(), found[1])
        for found in HEADING.finditer(text)
        if not any(first <= found.start() < last for first, last in inside)
    ]
    return [
        Block(found[1], found[2], found.start(2), [name for at, name in headings if at < found.start()][-1])
        for found in BLOCK.finditer(text)
    ]


def write_file(block: Block, folder: Path) -> None:
    """Write the file that a block shows, or add to it."""
    found = FILE_NAME.match(block.body)
    assert found is not None, f"a file without a name: {block.body[:60]!r}"
    path = folder / found[1]
    path.parent.mkdir(exist_ok=True)
    assert path.exists() == bool(found[2]), f"{found[1]} is shown twice, or continued before it is shown"
    with path.open("a") as file:
        file.write(f"\n\n{block.body[found.end() :]}" if found[2] else block.body)


def shown_in(block: Block) -> list[Shown]:
    """The commands of a block that runs, each with the output below it."""
    if block.kind == "sh":
        return [Shown(line, "") for line in block.body.splitlines() if line and not line.startswith("#")]
    assert block.body.startswith("$ "), block.body
    parts = re.split(r"^\$ ", block.body, flags=re.MULTILINE)[1:]
    return [Shown(*part.split("\n", 1)) for part in parts]


def run(command: str, folder: Path, bin_folder: Path) -> "subprocess.CompletedProcess[str]":
    """A command to its end, with both outputs as one."""
    inherited = {name: value for name, value in os.environ.items() if name != "AHBM_CHECK_INVARIANTS"}
    path = f"{bin_folder}:{os.environ.get('PATH', os.defpath)}"
    more = {"PATH": path, "PYTHONSAFEPATH": "1", "PYTHONUNBUFFERED": "1", "LC_ALL": "C.UTF-8", "COLUMNS": "80"}
    return subprocess.run(
        ["sh", "-c", command],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=folder,
        env={**inherited, **more},
        timeout=600,
    )


def make_folder(folder: Path) -> tuple[Path, Path]:
    """A folder to work in, with the files that pages name by their path in the checkout, and one of the commands."""
    bin_folder, here = folder / "bin", folder / "here"
    bin_folder.mkdir()
    here.mkdir()
    for name, module in COMMANDS.items():
        script = bin_folder / name
        words = f"-m {module}" if module else ""
        script.write_text(f'#!/bin/sh\nPYTHONPATH="{ROOT}" exec "{sys.executable}" {words} "$@"\n')
        script.chmod(0o755)
    (here / "scripts").mkdir()
    (here / "docs").symlink_to(ROOT / "docs")
    for path in (ROOT / "scripts").glob("*"):
        (here / "scripts" / path.name).symlink_to(path)
    for name in COMMANDS:
        (here / "scripts" / name).unlink(missing_ok=True)
        (here / "scripts" / name).symlink_to(bin_folder / name)
    return here, bin_folder


def masked(output: str) -> str:
    """An output without what differs from run to run."""
    for pattern, instead in MASKED:
        output = pattern.sub(instead, output)
    return output


def play(text: str, section: str) -> list[tuple[Block, list[Shown], list["subprocess.CompletedProcess[str]"]]]:
    """Write the files of a page up to and in a section, and run the section's commands where they stand."""
    played = []
    with tempfile.TemporaryDirectory(prefix="page-") as folder:
        here, bin_folder = make_folder(Path(folder))
        every = blocks(text)
        last = max(index for index, block in enumerate(every) if block.section == section)
        for block in every[: last + 1]:
            if block.kind in ("python", "yaml"):
                write_file(block, here)
            elif block.kind in ("console", "sh") and block.section == section:
                shown = shown_in(block)
                played.append((block, shown, [run(each.command, here, bin_folder) for each in shown]))
    return played


def sections(text: str) -> list[str]:
    """The headings under which there are commands."""
    return list(dict.fromkeys(block.section for block in blocks(text) if block.kind in ("console", "sh")))


SECTIONS = [(page, section) for page, text in PAGES.items() for section in sections(text)]


@pytest.mark.parametrize(("page", "section"), SECTIONS)
def test_commands_print_what_the_page_shows(page: str, section: str) -> None:
    for block, shown, ran in play(PAGES[page], section):
        for each, done in zip(shown, ran, strict=True):
            if block.kind == "sh":
                assert done.returncode == 0, f"$ {each.command}\n{done.stdout}"
            else:
                assert masked(done.stdout) == masked(each.output), f"$ {each.command}"


@pytest.mark.parametrize("page", PAGES)
def test_every_block_has_a_kind_and_every_file_is_used(page: str) -> None:
    every = blocks(PAGES[page])
    assert {block.kind for block in every} <= {"console", "sh", "python", "yaml", "text"}
    commands = "\n".join(shown.command for b in every if b.kind in ("console", "sh") for shown in shown_in(b))
    files = [block for block in every if block.kind in ("python", "yaml")]
    sources = "\n".join(block.body for block in files)
    for name in (FILE_NAME.match(block.body)[1] for block in files):  # type: ignore[index]
        stem = name.partition(".")[0].replace("/", ".")
        is_used = rf"(module: {name})|(kind: {stem})|(from {stem} import)|(import {stem})|(  {stem}: )"
        assert name in commands or f"--chip {stem} " in commands or re.search(is_used, sources), name


def outputs_in_text(page: str) -> list[Block]:
    """The text blocks of a page with more in them than commands."""
    every = [block for block in blocks(PAGES[page]) if block.kind == "text"]
    return [block for block in every if not all(line.startswith("$ ") for line in block.body.splitlines())]


@pytest.mark.parametrize("page", PAGES)
def test_no_output_is_shown_that_no_test_prints(page: str) -> None:
    shown = outputs_in_text(page)
    assert len(shown) == len(SHOWN.get(page, []))
    for block, start in zip(shown, SHOWN.get(page, []), strict=True):
        assert block.body.startswith(start)


def shape(line: str) -> str:
    """A line without its numbers and its time, and with single spaces."""
    return " ".join(re.sub(r"\d+(\.\d+)?", "N", line).partition(", at ")[0].split())


def test_the_progress_and_the_state_of_a_run_look_as_shown() -> None:
    """Of a longer run, which prints its progress and then gets the signal. Where each SIP and PE stands differs."""
    from launch import launching

    progress, state = (block.body.splitlines() for block in outputs_in_text("docs/output.md"))
    varies = re.compile(r"  \d+ (   \w|PEs )")
    missing = {shape(line) for line in progress + state[1:] if not varies.match(line)}
    with launching("--sips", 2, "--bytes", "32M", "--progress") as launch:
        missing.remove(shape(launch.line(lambda line: "%, simulated" in line and " us of about" in line)))
        launch.process.send_signal(signal.SIGUSR1)
        while missing:  # the two reports come in any order; a run that ends first fails with all that it said
            missing.discard(shape(launch.line(lambda line: shape(line) in missing)))
        launch.process.send_signal(signal.SIGINT)
        assert launch.end().exit_code == 130
    for place in re.finditer(r" (?:tl\.)?(load|send|recv)\b.* at (\S+):(\d+)", "\n".join(state)):
        source = (ROOT / "sipsim/chips/ahbm/collectives" / place[2]).read_text().splitlines()
        assert f"tl.{place[1]}(" in source[int(place[3]) - 1], place[0]


def test_the_broker_and_its_ranks_start_by_hand_as_shown(tmp_path: Path) -> None:
    """On an address of this machine; a port and the folder are those of the run."""
    from launch import END_S
    from manual_run import by_hand

    command, *lines = outputs_in_text("docs/clusters.md")[0].body.splitlines()
    argv = command.split()[2:]
    assert argv[:4] == ["--tickets", "tickets", "--bind", "10.0.0.1"]
    run_of = re.compile(r"tcp://[\d.]+:\d+|\S*/tickets/")
    with by_hand(tmp_path, *argv[4:]) as run:
        assert [run_of.sub("X", line.rstrip("\n")) for line in run.said] == [run_of.sub("X", line) for line in lines]
        ends = [(sip, sip.communicate(timeout=END_S)) for sip in [run.start(0), run.start(1)]]
        run.broker.communicate(timeout=END_S)
    assert [sip.returncode for sip in (run.broker, *(sip for sip, _ in ends))] == [0, 0, 0], ends


def anchors(text: str) -> set[str]:
    """The names by which headings of a page can be linked to."""
    plain = [re.sub(r"[`*]", "", found[1]).strip().lower() for found in HEADING.finditer(BLOCK.sub("", text))]
    kept = ["".join(each for each in name if each in " -_" or unicodedata.category(each)[0] in "LN") for name in plain]
    return {name.replace(" ", "-") for name in kept}


@pytest.mark.parametrize("page", PAGES)
def test_links_resolve(page: str) -> None:
    for target in LINK.findall(BLOCK.sub("", PAGES[page])):
        if re.match(r"https?:", target):
            continue
        name, _, anchor = target.partition("#")
        path = (ROOT / page).parent / name if name else ROOT / page
        assert path.exists(), f"{page}: {target}"
        if anchor:
            assert anchor in anchors(path.read_text(encoding="utf-8")), f"{page}: {target}"


def test_every_page_is_reached_from_the_readme() -> None:
    reached, new = set(), {"README.md"}
    while new:
        reached |= new
        links = {
            os.path.normpath((Path(page).parent / target.partition("#")[0]).as_posix())
            for page in new
            for target in LINK.findall(PAGES[page])
        }
        new = (links & PAGES.keys()) - reached
    assert reached == PAGES.keys()


def test_figures_in_the_prose_of_the_readme_are_those_of_its_outputs_and_of_the_validation() -> None:
    text = PAGES["README.md"]
    rows = re.findall(r"\| all \| (\d+) \| \d+ \| (\d+) \|", PAGES["docs/validation.md"])
    published, within = (sum(map(int, column)) for column in zip(*rows, strict=True))
    assert f"{published} published figures: {within} come within 15 %" in text
    named = set(re.findall(r"\d+\.\d %", BLOCK.sub("", text)))
    assert named
    assert named <= set(re.findall(r"\d+\.\d %", "".join(block.body for block in blocks(text))))


def test_the_installed_package_has_its_licence() -> None:
    """It is installed from a wheel, whose licences are those of every other."""
    files = importlib.metadata.files("ahbm-sim") or []
    assert {path.name for path in files if "licenses" in path.parts} == {"LICENSE", "NOTICE"}


def test_guides_name_every_operation_setting_and_table() -> None:
    from sipsim.chips.ahbm.collectives.neighbours import TABLES
    from sipsim.chips.ahbm.tl.language import TL
    from sipsim.config.schema import IpcqKnobs

    operations = [name for name in dir(TL) if not name.startswith("_")]
    rows = [line for text in PAGES.values() for line in text.splitlines() if line.startswith("| `")]
    for name in operations:
        assert any(re.search(rf"`{name}\b", row.split("|")[1]) for row in rows), name
    for name in IpcqKnobs.__struct_fields__:
        assert any(f"`{name}`" in row for row in rows), name
    for name in TABLES.names():
        assert f"\n{name} " in PAGES["docs/ccl-author-guide.md"], name


def refreshed(text: str) -> str:
    """A page with what its commands print now; what differs only in what is masked stays."""
    changes: list[tuple[Block, str]] = []
    for block, shown, ran in (played for section in sections(text) for played in play(text, section)):
        if block.kind == "sh":
            continue
        lines = []
        for each, done in zip(shown, ran, strict=True):
            kept = each.output if masked(each.output) == masked(done.stdout) else done.stdout
            lines.append(f"$ {each.command}\n{kept}" + ("" if kept.endswith("\n") or not kept else "\n"))
        changes.append((block, "".join(lines)))
    for block, body in sorted(changes, reverse=True, key=lambda change: change[0].start):
        text = text[: block.start] + body + text[block.start + len(block.body) :]
    return text


if __name__ == "__main__":
    if sys.argv[1:2] != ["--refresh"] or not set(sys.argv[2:]) <= set(PAGES):
        sys.exit(f"usage: python tests/processes/docs/test_pages.py --refresh [{' '.join(PAGES)}]")
    for name in sys.argv[2:] or [name for name in PAGES if name not in GENERATED]:
        before = PAGES[name]
        new = refreshed(before)
        print(f"{name}: {'as it was' if new == before else 'refreshed; read git diff'}", flush=True)
        (ROOT / name).write_text(new, encoding="utf-8")
