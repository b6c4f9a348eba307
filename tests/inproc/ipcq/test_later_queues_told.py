"""What a run tells of queue pairs that were made while time ran: its path, traces, pointers, and what hangs."""

from pathlib import Path

from explained import explained
from later_script import SCRIPT
from runs import run, script_file

SIPS = {"sips": 5, "topology": "ring_1d"}


def test_the_path_knows_the_queue_pairs_of_every_generation(tmp_path: Path) -> None:
    """Each step is priced by terms of the config, credits to far peers too, and nothing is left without a name."""
    _, told = explained(script=script_file(tmp_path, SCRIPT), **SIPS)
    assert all(sum(part.ps for part in step.parts) == step.end_ps - step.start_ps for step in told.steps)
    names = {part.part for part in told.parts}
    assert "credits: routers" in names
    assert "credits: PE_IPCQ" in names
    assert not [name for name in names if name.startswith("waiting in ")]


TAKEN = 'tl.recv("next", 64, "i32")'
HANGS = SCRIPT.replace(TAKEN, f"({TAKEN} if turn < 3 else {TAKEN} + {TAKEN})")


def test_a_hang_names_the_queue_pairs_in_use(tmp_path: Path) -> None:
    """In the third generation each rank waits for a message too many."""
    done = run("--sips", 5, "--topology", "ring_1d", script_file(tmp_path, HANGS))
    error = done.document["error"]
    assert error["kind"] == "IpcqDeadlock"
    assert "next#3" in error["message"]
    assert "#2" not in done.outcome.error.message


CLOSE = "sip.close(generation)"
DUMPS = SCRIPT.replace(CLOSE, f"assert generation < 2, dist.pointer_dump()\n        {CLOSE}")


def test_pointers_are_dumped_by_full_name(tmp_path: Path) -> None:
    done = run("--sips", 5, "--topology", "ring_1d", script_file(tmp_path, DUMPS))
    told = done.document["error"]["message"]
    assert "PE 1 next#2: my_head=1 my_tail=1 peer_head_cache=1 peer_tail_cache=1" in told
    assert "next#1" not in told
