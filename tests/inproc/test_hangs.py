"""The case to beat: a wrong direction on every one of 1024 PEs. And where host code is that runs in a thread."""

from pathlib import Path

import pytest
import thread_bridge
from runs import ccl_file, run, script_file
from sweeps import some

from launcher.engines import inproc
from launcher.report.failure import block
from sipsim.node.sip_node import SipNode

WRONG = """
def kernel_args(world_size, n_elem):
    return ()

def kernel(t_ptr, tl):
    values = tl.load(t_ptr, 4)
    for _ in range(1 + tl.rank() % 7):
        tl.send("E", values)
    tl.recv("E", 4, t_ptr.dtype)
"""
RECV = 9


@pytest.mark.parametrize("sips", some([12, 64], 12))
def test_a_wrong_direction_on_every_rank_of_many_sips(tmp_path: Path, sips: int) -> None:
    """Every PE has other pointers. 40 lines at most, the cause and its line in the first one."""
    flags = ccl_file(tmp_path, WRONG, topology="ring_1d", rank_per="cube")
    done = run("--sips", sips, "--topology", "ring_1d", "--n-elem", 4, *flags)
    lines = block(done.outcome).splitlines()
    assert len(lines) <= 40
    assert lines[0].startswith(
        "ahbm-launch: IpcqDeadlock: perhaps a wrong direction: "
        f"{16 * sips} PEs on SIPs 0 to {sips - 1}, cubes 0 to 15, PE 0 wait in recv E at "
    )
    assert (
        f"/mine.py:{RECV}, with unread messages from W; {16 * sips} PEs wait and nothing can happen any more"
        in lines[0]
    )
    assert lines[1].startswith("  a cycle: rank 0 cube 0 PE 0 (recv E) -> ")
    waits = done.document["error"]["deadlock"]["waits"]
    assert {(wait["file"], wait["line"]) for wait in waits} == {(str(tmp_path / "mine.py"), RECV)}
    assert len(waits) == 16 * sips
    assert done.outcome.long_report.text.count("    here:  my_head=") == 16 * sips


SCRIPT = """
def worker(rank, world_size, torch):
    torch.distributed.init_process_group()
    if rank == 0:
        torch.distributed.all_reduce(torch.ones(2, 4))
"""


@pytest.mark.parametrize("threads", [False, True])
def test_where_a_host_script_waits(threads: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also when its code runs in a thread, where the host task is only its agent."""
    made = []

    def node(*args: object, **kwargs: object) -> SipNode:
        made.append(thread_bridge.ThreadBridge())
        return SipNode(*args, **kwargs, bridge=made[-1])  # type: ignore[arg-type]

    if threads:
        monkeypatch.setattr(inproc, "SipNode", node)
    sizes = ("--set", "sip.cube_mesh.w=2", "--set", "sip.cube_mesh.h=1")
    done = run("--sips", 2, *sizes, script_file(tmp_path, SCRIPT))
    (script,) = [each for each in done.document["error"]["deadlock"]["others"] if "cube" not in each]
    assert (script["task"], script["file"], script["line"]) == ("host script", str(tmp_path / "script.py"), 5)
    for member in done.members:
        member.stop_tasks()
