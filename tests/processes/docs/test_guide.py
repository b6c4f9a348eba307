"""The guides are true: their files are written, their commands run, and the output is what they show.

``python tests/processes/docs/test_guide.py --refresh [NAME...]`` runs all, or those named, and writes what comes out.
"""

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[3]
DOCS = ROOT / "docs"
PAGES = [*sorted(DOCS.glob("*-guide.md")), DOCS / "collectives.md", DOCS / "fabric.md"]
GUIDES = {path.name: path.read_text(encoding="utf-8") for path in PAGES}
CCL = GUIDES["ccl-author-guide.md"]
COMMANDS = {"ahbm-launch": "launcher", "ahbm-probe": "launcher.cli.probe", "ahbm-races": "launcher.cli.races"}
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FILE_NAME = re.compile(r"# ([\w./]+?)(, continued)?\n")
MASKED = (
    (re.compile(r"\bpid \d+"), "pid N"),
    (re.compile(r"\b\d+\.\d+ s\b"), "T s"),
    (re.compile(r"\bhost [\w.-]+"), "host H"),
)
"""Pids, wall times and host names; a simulated time has another unit."""

pytestmark = [pytest.mark.processes, pytest.mark.default_costs]


class Block(NamedTuple):
    """A fenced block: what it is, what is in it, where that starts in the guide, and under which heading."""

    kind: str
    body: str
    start: int
    section: str


class Shown(NamedTuple):
    """A command of the guide, and what it shows of its output."""

    command: str
    output: str


class Played(NamedTuple):
    """A console block, its commands, and what came out of each."""

    block: Block
    shown: list[Shown]
    said: list[str]


def blocks(text: str) -> list[Block]:
    """All fenced blocks, in order."""
    headings = [(found.start(), found[1]) for found in re.finditer(r"^## (.*)$", text, re.MULTILINE)]
    return [
        Block(found[1], found[2], found.start(2), [name for at, name in headings if at < found.start()][-1])
        for found in BLOCK.finditer(text)
    ]


def write_file(block: Block, folder: Path) -> None:
    """Write the file that a block shows, or add to it."""
    found = FILE_NAME.match(block.body)
    assert found is not None, f"a block that is no file and no console: {block.body[:60]!r}"
    path = folder / found[1]
    path.parent.mkdir(exist_ok=True)
    assert path.exists() == bool(found[2]), f"{found[1]} is shown twice, or continued before it is shown"
    with path.open("a") as file:
        file.write(f"\n\n{block.body[found.end() :]}" if found[2] else block.body)


def shown_in(block: Block) -> list[Shown]:
    """The commands of a console block, each with the lines below it."""
    assert block.body.startswith("$ "), block.body
    parts = re.split(r"^\$ ", block.body, flags=re.MULTILINE)[1:]
    return [Shown(*part.split("\n", 1)) for part in parts]


def run(command: str, folder: Path, bin_folder: Path) -> str:
    """What a command says, on both outputs."""
    inherited = {name: value for name, value in os.environ.items() if name != "AHBM_CHECK_INVARIANTS"}
    path = f"{bin_folder}:{os.environ.get('PATH', os.defpath)}"
    env = {**inherited, "PATH": path, "PYTHONSAFEPATH": "1", "PYTHONUNBUFFERED": "1", "LC_ALL": "C.UTF-8"}
    done = subprocess.run(
        ["sh", "-c", command],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=folder,
        env=env,
        timeout=60,
    )
    return done.stdout


def make_commands(folder: Path) -> Path:
    """The commands as an installation would have them, from this checkout, in a folder of their own."""
    folder.mkdir()
    for name, module in COMMANDS.items():
        script = folder / name
        script.write_text(f'#!/bin/sh\nPYTHONPATH="{ROOT}" exec "{sys.executable}" -m {module} "$@"\n')
        script.chmod(0o755)
    return folder


def masked(output: str) -> str:
    """What may differ from run to run made alike."""
    for pattern, instead in MASKED:
        output = pattern.sub(instead, output)
    return output


def play(text: str, section: str) -> list[Played]:
    """Write the files of a guide up to and in a section, and run its commands where they stand."""
    with tempfile.TemporaryDirectory(prefix="guide-") as folder:
        return list(_play(text, section, Path(folder)))


def _play(text: str, section: str, folder: Path) -> Iterator[Played]:
    bin_folder = make_commands(folder / "bin")
    here = folder / "here"
    here.mkdir()
    every = blocks(text)
    last = max(index for index, block in enumerate(every) if block.section == section)
    for block in every[: last + 1]:
        if block.kind != "console":
            write_file(block, here)
        elif block.section == section:
            shown = shown_in(block)
            yield Played(block, shown, [run(each.command, here, bin_folder) for each in shown])


def sections(text: str) -> list[str]:
    """The headings under which there are commands."""
    return list(dict.fromkeys(block.section for block in blocks(text) if block.kind == "console"))


SECTIONS = [(guide, section) for guide, text in GUIDES.items() for section in sections(text)]


@pytest.mark.parametrize(("guide", "section"), SECTIONS)
def test_what_comes_out_is_what_the_guide_shows(guide: str, section: str) -> None:
    for _, shown, said in play(GUIDES[guide], section):
        for each, output in zip(shown, said, strict=True):
            assert masked(output) == masked(each.output), f"$ {each.command}"


def test_they_name_every_operation_knob_and_table() -> None:
    from sipsim.ccl.tables.base import TABLES
    from sipsim.config.model import IpcqKnobs
    from sipsim.tl.language import TL

    operations = [name for name in dir(TL) if not name.startswith("_")]
    rows = [line for text in GUIDES.values() for line in text.splitlines() if line.startswith("| `")]
    for name in operations:
        assert any(re.search(rf"`{name}\b", row.split("|")[1]) for row in rows), name
    for name in IpcqKnobs.__struct_fields__:
        assert any(f"`{name}`" in row for row in rows), name
    for name in TABLES.names():
        assert f"\n{name} " in CCL, name


@pytest.mark.parametrize("guide", GUIDES)
def test_every_file_is_used_and_every_block_is_a_file_or_a_console(guide: str) -> None:
    every = blocks(GUIDES[guide])
    assert {"console", "python"} <= {block.kind for block in every} <= {"console", "python", "yaml"}
    commands = "\n".join(shown.command for b in every if b.kind == "console" for shown in shown_in(b))
    sources = "\n".join(b.body for b in every if b.kind != "console")
    for name in (FILE_NAME.match(block.body)[1] for block in every if block.kind != "console"):  # type: ignore[index]
        stem = name.partition(".")[0].replace("/", ".")
        assert name in commands or re.search(rf"(module: {name})|(from {stem} import)|(import {stem})", sources), name


@pytest.mark.parametrize("guide", GUIDES)
def test_the_readme_leads_to_it(guide: str) -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert re.search(rf"\]\(docs/{re.escape(guide)}[#)]", readme)


def refreshed(text: str) -> str:
    """A guide with what its commands say now; what only differs in what is masked stays."""
    changes: list[tuple[Block, str]] = []
    for block, shown, said in (played for section in sections(text) for played in play(text, section)):
        lines = []
        for each, output in zip(shown, said, strict=True):
            kept = each.output if masked(each.output) == masked(output) else output
            lines.append(f"$ {each.command}\n{kept}" + ("" if kept.endswith("\n") or not kept else "\n"))
        changes.append((block, "".join(lines)))
    for block, body in sorted(changes, reverse=True, key=lambda change: change[0].start):
        text = text[: block.start] + body + text[block.start + len(block.body) :]
    return text


if __name__ == "__main__":
    if sys.argv[1:2] != ["--refresh"] or not set(sys.argv[2:]) <= set(GUIDES):
        sys.exit(f"usage: python tests/processes/docs/test_guide.py --refresh [{' '.join(GUIDES)}]")
    for name in sys.argv[2:] or GUIDES:
        before = GUIDES[name]
        new = refreshed(before)
        print(f"{name}: {'as it was' if new == before else 'refreshed; read git diff'}")
        (ROOT / "docs" / name).write_text(new, encoding="utf-8")
