"""A handle is of the kernel that made it; one that is released is explained."""

from pathlib import Path

import pytest
from explained import explained
from runs import run, script_file

SMALL = ("--sips", 1, "--set", "sip.cube_mesh.w=2", "--set", "sip.cube_mesh.h=1")
SCRIPT = """
kept = {{}}

def make(t, tl):
    kept[tl.program_id(1)] = tl.load(t, 4)

def use(t, tl):
    if tl.program_id(1) == 0:
        h = kept[{maker}]
        {word}

def worker(rank, world_size, torch):
    t = torch.zeros(2, 4)
    torch.launch(make, t)
    torch.launch(use, t)
"""
WORDS = {
    "tl.store takes a handle": "tl.store(t, h)",
    "tl.store_async takes a handle": "tl.store_async(t, h)",
    "tl.send takes a handle": "tl.send('E', h)",
    "tl.add takes handles": "tl.load(t, 4) + h",
    "tl.release takes a handle": "tl.release(h)",
}


@pytest.mark.parametrize("says", WORDS)
@pytest.mark.parametrize("maker", [0, 1], ids=["of an earlier kernel", "of another PE"])
def test_a_handle_of_another_kernel_is_refused(tmp_path: Path, says: str, maker: int) -> None:
    done = run(*SMALL, script_file(tmp_path, SCRIPT.format(maker=maker, word=WORDS[says])))
    error = done.outcome.error
    assert error is not None
    assert error.kind == "KernelError"
    assert error.message.startswith(f"{says} of this kernel; h0 is a handle of another kernel, ")


IN_PLACE = """
def pair(t, tl):
    if tl.program_id(1) == 0:
        tl.send("E", tl.load(t, 64))
    else:
        {receive}

def worker(rank, world_size, torch):
    torch.launch(pair, torch.zeros(2, 64))
"""


@pytest.mark.parametrize("receive", ["tl.release(tl.recv('W', 64, 'f16'))", "tl.release(tl.recv(None, 64, 'f16'))"])
@pytest.mark.parametrize("memory", ["tcm", "hbm", "sram"])
def test_what_is_released_is_explained(tmp_path: Path, receive: str, memory: str) -> None:
    script = script_file(tmp_path, IN_PLACE.format(receive=receive))
    sets = ["defaults.latch=in_place", f"defaults.buffer_kind={memory}", "sip.cube_mesh={w: 2, h: 1}"]
    _, told = explained(script=script, sips=1, engine="inproc", set=sets)
    assert sum(part.ps for part in told.parts) == told.until_ps - told.since_ps
