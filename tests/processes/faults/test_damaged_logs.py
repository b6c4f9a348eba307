"""A kept run whose files were damaged: ``--resume`` ends with the digest of the whole run, or names the file in a line.

What can be damaged in a packet log is drawn in ``tests/pure/node/test_packet_log.py``; here are real processes.
"""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from launch import launched

pytestmark = pytest.mark.processes

RUN = ("--sips", "4", "--topology", "torus_2d", "--bytes", "64K", "--set", "sip.cube_mesh={w: 2, h: 2}", "-n", "3")
KILL = ("--fault", "kill:1@8us")
WITH_RECORDS = (0, 2, 3)
"""A rank that is killed at once may have flushed nothing: its log is then the header alone."""


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The folder of a run that was killed, and the digest of one that was not."""
    folder = tmp_path_factory.mktemp("run") / "kept"
    assert launched(*RUN, "--run-dir", folder, *KILL).exit_code == 4
    return folder, launched(*RUN).digest


def log_of(folder: Path, rank: int) -> Path:
    return folder / f"sip-{rank}.packets"


def changed(change: Callable[[bytes], bytes], rank: int = 0) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        path = log_of(folder, rank)
        path.write_bytes(change(path.read_bytes()))

    return damage


def exchanged(folder: Path) -> None:
    first, second, beside = log_of(folder, 0), log_of(folder, 1), folder / "beside"
    first.rename(beside)
    second.rename(first)
    beside.rename(second)


def in_the_middle(data: bytes) -> bytes:
    """A bit of the records flipped; the header is whole."""
    header = data.index(b"\n") + 1
    middle = (header + len(data)) // 2
    return data[:middle] + bytes([data[middle] ^ 4]) + data[middle + 1 :]


SURVIVED: dict[str, Callable[[Path], None]] = {
    "whole": lambda _: None,
    "missing": lambda folder: log_of(folder, 2).unlink(),
    "empty": changed(lambda _: b"", 3),
    "torn header": changed(lambda data: data[:20]),
    "torn": changed(lambda data: data[:-7]),
    "all flipped": lambda folder: [changed(in_the_middle, rank)(folder) for rank in WITH_RECORDS] and None,
    "longer": changed(lambda data: data + data[-40:]),
}
REFUSED: dict[str, tuple[Callable[[Path], None], str]] = {
    "exchanged": (exchanged, "of another rank"),
    "no log": (changed(lambda data: bytes(len(data))), "not a packet log"),
    "another version": (changed(lambda data: data.replace(b"packets 2", b"packets 3", 1)), "of another version"),
}


@pytest.mark.parametrize("damage", SURVIVED)
def test_what_is_damaged_is_simulated_again(damage: str, kept: tuple[Path, str], tmp_path: Path) -> None:
    folder, digest = tmp_path / "kept", kept[1]
    shutil.copytree(kept[0], folder)
    SURVIVED[damage](folder)
    done = launched("--resume", folder)
    assert (done.exit_code, done.digest) == (0, digest), done.stderr
    told = {line.split()[1].rstrip("]") for line in done.stderr.splitlines() if "the packet log is damaged" in line}
    assert told == {"torn": {"0"}, "longer": {"0"}, "all flipped": set(map(str, WITH_RECORDS))}.get(damage, set())


@pytest.mark.parametrize("damage", REFUSED)
def test_another_file_is_named_in_one_line(damage: str, kept: tuple[Path, str], tmp_path: Path) -> None:
    """Also the reason, not only the exit of the process that gives it."""
    folder, (act, says) = tmp_path / "kept", REFUSED[damage]
    shutil.copytree(kept[0], folder)
    act(folder)
    done = launched("--resume", folder)
    (line,) = done.own_lines
    assert done.exit_code == 2
    assert line.startswith(f"ahbm-launch: config: {folder}/sip-")
    assert says in line
    assert json.loads((folder / "run.json").read_text())["status"] == "failed", "it can be mended and resumed"
