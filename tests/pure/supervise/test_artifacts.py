"""A rank's artifact folder comes from an agent's host whole, whatever is in it, and leads nowhere else."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from launcher.hosts.agent import AgentArtifacts
from launcher.hosts.agent_hosts import AgentHosts
from launcher.hosts.wire import PIECE_BYTES, BadMessage, File, decode_from_agent, encode
from sipsim.core.errors import OutputError
from sipsim.records.artifacts import MOST_FOLDERS, make_artifact_folder, rank_folder

FILES = {
    "rank-0/trace.csv": b"1,2\n",
    "rank-0/never heard of": b"x" * (2 * PIECE_BYTES + 1),
    "rank-0/.hidden": b"h",
    "rank-0/empty": b"",
    "rank-3/spans/2026/\N{GREEK SMALL LETTER ALPHA}.bin": bytes(range(256)),
    f"rank-3/{'d/' * MOST_FOLDERS}deep": b"d",
}


def received(folder: Path, there: Path) -> None:
    """Send everything of an agent's folder into another, as messages of bytes."""
    pool: Any = SimpleNamespace(_folder=there, trouble="", _registry=SimpleNamespace(slots=[SimpleNamespace()]))
    pool._append = lambda name, data: AgentHosts._append(pool, name, data)
    for file in AgentArtifacts(str(folder)).files():
        AgentHosts._from(pool, 0, decode_from_agent(encode(file)), 0.0)
    assert pool.trouble == ""


def contents(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_every_file_arrives(tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    there.mkdir()
    for name, data in FILES.items():
        (here / name).parent.mkdir(parents=True, exist_ok=True)
        (here / name).write_bytes(data)
    (here / "sip-0.log").write_text("no artifact")
    (here / "0.packets").write_text("no artifact")
    received(here, there)
    assert contents(there) == FILES


def test_links_are_not_followed_and_other_names_stay(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    there.mkdir()
    folder = make_artifact_folder(rank_folder(str(here), 0), *"d" * (MOST_FOLDERS + 1))
    (folder / "too deep").write_text("x")
    (here / "rank-0" / "passwd").symlink_to("/etc/passwd")
    (here / "rank-0" / "etc").symlink_to("/etc")
    received(here, there)
    assert contents(there) == {}
    link, deep = capsys.readouterr().err.splitlines()
    assert link.startswith("ahbm-agent: file 'rank-0/passwd'")
    assert deep.startswith("ahbm-agent: file 'rank-0/d/")


@pytest.mark.parametrize(
    "name",
    [
        "",
        "/etc/passwd",
        "rank-0",
        "rank-0/",
        "rank-0/..",
        "rank-0/../broker",
        "rank-0/a/../../b",
        "rank-0/./a",
        "rank-0//a",
        "rank-0/a\0b",
        "rank-0/a\n",
        "rank-x/a",
        "../rank-0/a",
        "sip-0.log",
        "rank-0/" + "x" * 256,
        "rank-0/" + "d/" * (MOST_FOLDERS + 1) + "a",
        "rank-0/" + "/".join(["x" * 250] * 5),
    ],
)
def test_a_name_outside_of_a_ranks_folder_is_refused(name: str) -> None:
    with pytest.raises(BadMessage):
        decode_from_agent(encode(File(name, b"")))


def test_a_rank_without_a_folder_keeps_nothing() -> None:
    with pytest.raises(OutputError, match="no artifact folder"):
        make_artifact_folder("")
