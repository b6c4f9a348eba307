"""Host code in a thread of its own does what it does as a greenlet: tensors, times, errors, tensor memory."""

import contextlib
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import thread_bridge
from runs import Run, run, script_file

import launcher.api
from launcher.engines import inproc
from sipsim.node import failure
from sipsim.node.sip_node import SipNode

FLAGS = ("--sips", 2, "--set", "sip.cube_mesh.w=2", "--set", "sip.cube_mesh.h=1", "--set", "cube.hbm_MiB_per_pe=1")
TOP = """
import random, sys
import numpy as np

def double(t, n_elem, tl):
    row = t + tl.program_id(1) * n_elem * t.dtype.itemsize
    half = tl.load(row, n_elem)
    tl.store(row, half + half)
"""
WHOLE = """
t = torch.from_numpy(np.full((2, 6), random.randrange(9) + rank, np.float32))
a, b = torch.zeros(2, 6), torch.ones((2, 6), dtype="f32")
a.copy_(t)
works = [dist.all_reduce(a, async_op=True), torch.launch(double, a, 6, async_op=True)]
works.append(dist.all_reduce(b, async_op=True))
assert not works[-1].is_completed()
works[1].wait()
dist.start_together()
event = torch.Event()
event.record()
torch.synchronize()
assert event.time_ps == works[-1].end_ps
works[-1].wait()
for _ in range(30):
    torch.full((2, 2**14), 1.5)
try:
    dist.all_reduce(a, op="max")
except ValueError as error:
    b.fill_(len(str(error)))
torch.launch(double, b, 6)
a.copy_(torch.from_numpy(a.numpy() + b.cpu().numpy()))
assert (sys.argv[1:], "receives in" in dist.pointer_dump()) == (["7"], True)
"""
FAILING = {
    "of the script": "torch.ones(2, 4)\n[][3]",
    "of a call": "dist.all_reduce(torch.ones(2, 4))\ndist.all_reduce(torch.ones(2, 4), op='max')",
    "of the simulator": "torch.zeros(2, 2**20)",
    "of a kernel": "torch.launch(lambda t, tl: tl.load(t, 99), torch.ones(2, 4))",
    "of a kernel that launches": "torch.launch(lambda t, tl: torch.launch(double, t, 4), torch.ones(2, 4))",
    "on leaving": "sys.exit('no')",
    "of one rank": "if rank:\n    raise KeyError(torch.ones(2, 4).numpy()[0, 0])\ndist.all_reduce(torch.ones(2, 4))",
    "of no rank, a deadlock": "if rank:\n    dist.all_reduce(torch.ones(2, 4))",
}
"""Exceptions, by where they come from."""


class Bridges:
    """Runs a script under either bridge, with two SIPs in this process."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._folder = folder
        self._monkeypatch = monkeypatch
        self.made: list[thread_bridge.ThreadBridge] = []

    def run(self, body: str, threads: bool, mail_seed: int = 0) -> Run:
        lines = ["dist = torch.distributed", "dist.init_process_group()", *body.strip().splitlines()]
        source = "\n    ".join([f"{TOP}\ndef worker(rank, world_size, torch):", *lines])
        make = self._node_in_a_thread if threads else SipNode
        with self._monkeypatch.context() as patch:
            patch.setattr(inproc, "SipNode", make)
            # A bridge of the package would lie there.
            patch.setattr(failure, "_SIMULATOR", (*failure._SIMULATOR, thread_bridge.__file__))
            return run(*FLAGS, script_file(self._folder, f"{source}\n"), 7, mail_seed=mail_seed)

    @contextlib.contextmanager
    def in_threads(self) -> Iterator[None]:
        """Host programs of the engine ``inproc`` in threads."""
        with self._monkeypatch.context() as patch:
            patch.setattr(inproc, "SipNode", self._node_in_a_thread)
            yield

    def _node_in_a_thread(self, *args, **kwargs):
        self.made.append(thread_bridge.ThreadBridge())
        return SipNode(*args, **kwargs, bridge=self.made[-1])


@pytest.fixture
def bridges(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bridges:
    return Bridges(tmp_path, monkeypatch)


@pytest.mark.ideal
@pytest.mark.parametrize("mail_seed", range(3))
def test_same_digest(bridges: Bridges, mail_seed: int) -> None:
    greenlets, threads = bridges.run(WHOLE, False), bridges.run(WHOLE, True, mail_seed)
    assert greenlets.outcome.error is None, f"{greenlets.outcome.error.message}\n{greenlets.outcome.error.detail}"
    assert [run["wrong"] for run in threads.document["runs"]] == [0, 0]
    assert threads.document["digest"] == greenlets.document["digest"] is not None
    assert threads.document["runs"] == greenlets.document["runs"]
    assert [bridge.thread.is_alive() for bridge in bridges.made] == [False, False]


@pytest.mark.ideal
@pytest.mark.parametrize("body", FAILING.values(), ids=FAILING)
def test_same_error(bridges: Bridges, body: str) -> None:
    """Its kind, its line, the user's frames of its traceback, and what the ranks had done."""
    told = []
    for threads in (False, True):
        done = bridges.run(body, threads)
        error = done.outcome.error
        assert error is not None
        told.append((error.kind, error.rank, error.message, users_frames(error.detail), done.results()))
    assert told[0] == told[1]


STOPPED = """
from launcher.supervise.signals import ForcedStop

def stop(t, tl):
    raise ForcedStop

def worker(rank, world_size, torch):
    torch.distributed.init_process_group()
    if rank:
        torch.launch(stop, torch.zeros(2, 4))
    torch.distributed.all_reduce(torch.ones(2, 4))
"""


def test_a_forced_stop_leaves_no_thread_and_no_file(bridges: Bridges, tmp_path: Path) -> None:
    """In the kernel of one rank, while the other's host program waits for the collective."""
    path, files = script_file(tmp_path, STOPPED), os.listdir("/proc/self/fd")
    with bridges.in_threads():
        outcome = launcher.api.run(
            path, engine="inproc", sips=2, set=list(FLAGS[3::2]), trace_ccl=tmp_path / "trace.csv"
        )
    assert outcome.status == "interrupted", outcome.output
    assert [bridge.thread is not None and bridge.thread.is_alive() for bridge in bridges.made] == [False, False]
    assert os.listdir("/proc/self/fd") == files


def users_frames(detail: str) -> list[str]:
    """A traceback without the frames of the simulator, which it has if there are no others."""
    lines = detail.splitlines()
    places = [line for line in lines if line.startswith("  File ")]
    return [line for line in places if "/sipsim/" not in line and "/thread_bridge.py" not in line] + lines[-1:]


def test_a_run_that_is_cut_short_ends_its_threads(bridges: Bridges, capfd: pytest.CaptureFixture[str]) -> None:
    """Rank 0 waits for a collective that rank 1 never calls; it can clean up, but call nothing any more."""
    body = """
try:
    if not rank:
        dist.all_reduce(torch.ones(2, 4))
    else:
        raise ValueError("rank 1 gives up")
finally:
    print("rank", rank, "leaves", flush=True)
    torch.zeros(2, 4)
    print("rank", rank, "was not told that the run is over", flush=True)
"""
    done = bridges.run(body, True)
    assert done.outcome.error is not None
    assert "rank 1 gives up" in done.outcome.error.message
    assert sorted(capfd.readouterr().out.splitlines()) == [
        "rank 0 leaves",
        "rank 1 leaves",
        "rank 1 was not told that the run is over",
    ]
    assert [bridge.thread.is_alive() for bridge in bridges.made] == [False, False]
    assert not [thread for thread in threading.enumerate() if thread.name == "host program"]
