"""An outage of a link on four processes: the digest of one process, also after a death while the link is down."""

from pathlib import Path

import pytest
from launch import Done, launched

SMALL = ("--sips", 4, "--link", "ethernet_100g", "--set", "sip.cube_mesh.w=2", "--set", "sip.cube_mesh.h=1")
RUN = (*SMALL, "--collective", "all_reduce", "--algorithm", "ring", "--bytes", "16K", "--fault", "link:0.E@3us:50us")


def launch(folder: Path, *flags: object) -> Done:
    return launched(*RUN, *flags, "--json", folder / "out.json")


@pytest.mark.parametrize("flags", [(), ("--max-restarts", 2, "--fault", "kill:1@20us")], ids=["as is", "killed"])
def test_four_processes_do_as_one(tmp_path: Path, flags: tuple[object, ...]) -> None:
    alone = launch(tmp_path, "--engine", "inproc")
    done = launch(tmp_path, "--engine", "local", *flags)
    assert (alone.exit_code, done.exit_code) == (0, 0), alone.stderr + done.stderr
    assert done.digest == alone.digest
    assert done.document["ranks"][0]["outages"] == alone.document["ranks"][0]["outages"]
    assert done.document["ranks"][0]["outages"][0]["resent_packets"] > 0
    assert [rank["restarts"] for rank in done.document["ranks"]] == [0, int(bool(flags)), 0, 0]
    assert done.left_files == []
