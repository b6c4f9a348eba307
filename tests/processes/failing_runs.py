"""Runs of three ranks that are stopped or killed while every rank blocks, and what is asserted of their ends."""

import os
import signal
from pathlib import Path

from launch import ALL_REDUCE, STAND, Done, Launch, launching, script

RING = ("--sips", "3", "--set", "sip.cube_mesh.w=2", "--set", "sip.cube_mesh.h=2")


class Standing:
    """A run whose ranks all block in their scripts after a first collective, and the pids of its processes."""

    def __init__(self, launch: Launch) -> None:
        said = launch.words("stands", 3)
        self.sips = {rank: int(pid) for rank, pid in said.items()}
        tree = launch.watch()
        (self.server,) = tree[launch.pid]
        (self.broker,) = set(tree[self.server]) - set(self.sips.values())
        assert set(tree[self.server]) == {self.broker, *self.sips.values()}


def kill_standing(folder: Path, who: str, signum: int = signal.SIGKILL, *flags: str) -> Done:
    """Kill one process of a blocked run; ``who`` is ``sip-1``, ``broker``, ``server`` or ``launcher``."""
    path = script(folder, f"{STAND}\n{ALL_REDUCE}")
    with launching(*RING, "--json", folder / "out.json", *flags, path) as launch:
        run = Standing(launch)
        pids = {"broker": run.broker, "server": run.server, "launcher": launch.pid}
        pids |= {f"sip-{rank}": pid for rank, pid in run.sips.items()}
        os.kill(pids[who], signum)
        done = launch.end()
    assert done.left_files == []
    return done


def assert_partial(done: Done, status: str, kind: str) -> None:
    """The result file is marked partial, with the reason."""
    assert (done.document["status"], done.document["error"]["kind"], done.document["digest"]) == (status, kind, None)
    assert done.document["schema"] == 1
