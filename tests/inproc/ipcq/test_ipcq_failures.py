"""Errors of queues, with place and time, in the result of a whole run of two SIPs.

The invariants of ADR-0023 D14 and ADR-0025 D6: a real part is broken before each call of the checker, which says so
(each invariant by hand is in ``pure/ipcq/test_invariants.py``). Then what kernels do wrong: F1 to F5.
"""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from runs import Run, ccl_file, run, script_file

from sipsim.chips.ahbm.ipcq.messages import TakenSlot
from sipsim.chips.ahbm.ipcq.pe_ipcq import PeIpcq
from sipsim.chips.ahbm.ipcq.queue_pair import QueuePair, Receiving

HEAD = """
TOPO_NAME_TO_KIND = {"ring_1d": 0}

def kernel_args(world_size, n_elem):
    return (n_elem,)

def neighbors(rank, world_size, built_in):
    return {1: {"there": 3}, 3: {"back": 1}}.get(rank, {})

def kernel(t_ptr, n_elem, sip, kind, w, h, tl):
    if tl.program_id(1) == 1:
        (sender if sip == 0 else receiver)(tl, t_ptr, n_elem)
"""
"""PE 0 of cube 1 of rank 0 sends ``there``, that of rank 1 receives from ``back``."""

SENDER = """
def sender(tl, ptr, n):
    tl.load(ptr, n)
    for turn in range(10):
        tl.send("there", src_addr=ptr, shape=n)

def receiver(tl, ptr, n):
"""
TEN = SENDER + "    for turn in range(10): tl.recv('back', n, 'f16')"
FLAGS = ("--sips", 2, "--set", "sip.cube_mesh.w=2", "--set", "sip.cube_mesh.h=1", "--n-elem", 8, "--no-verify-data")


def run_kernels(folder: Path, kernels: str, *flags: object) -> Run:
    return run(*ccl_file(folder, HEAD + kernels), *FLAGS, *flags)


def error_of(done: Run) -> dict[str, Any]:
    """The error of the result file, which a PE caused: kind, rank, place, direction and time."""
    error = done.document["error"]
    assert done.outcome.exit_code == 3
    assert (error["cube"], error["pe"]) == (1, 0)
    assert 0 < error["time_ps"] == done.document["ranks"][error["rank"]]["sim_end_ps"]
    return error


# --- invariants -----------------------------------------------------------------------------------------------


def no_backpressure(patch: pytest.MonkeyPatch) -> None:
    """A sender that never finds a ring full."""
    patch.setattr(QueuePair, "is_full", False)


def taken_twice(patch: pytest.MonkeyPatch) -> None:
    """A tail that does not move on."""
    real = PeIpcq._free_read_slots

    def was_read(ipcq: PeIpcq, taken: TakenSlot, *more: Any, **named: Any) -> None:
        ipcq.every[taken.direction].my_tail -= 1
        real(ipcq, taken, *more, **named)

    patch.setattr(PeIpcq, "_free_read_slots", was_read)


def credit_too_many(patch: pytest.MonkeyPatch) -> None:
    """Credits that count one slot more than was freed."""
    real = PeIpcq.credit
    patch.setattr(PeIpcq, "credit", lambda ipcq, c: real(ipcq, replace(c, consumer_seq=c.consumer_seq + 100)))


def before_it_was_sent(patch: pytest.MonkeyPatch) -> None:
    """A message whose ``sent_ps`` is its arrival."""
    real = PeIpcq.arrive
    patch.setattr(PeIpcq, "arrive", lambda ipcq, sent: real(ipcq, replace(sent, sent_ps=ipcq._engine.now_ps)))


def overwritten(patch: pytest.MonkeyPatch) -> None:
    """Something writes into a slot between the arrival and the receive."""
    real = PeIpcq._take

    def take(ipcq: PeIpcq, queue: QueuePair, receiving: Receiving, cause: int) -> None:
        ipcq._memory.write(queue.next_rx_slot_pa() + 3, b"\x55")
        real(ipcq, queue, receiving, cause)

    patch.setattr(PeIpcq, "_take", take)


INVARIANTS: list[tuple[Callable[[pytest.MonkeyPatch], None], str, int, str]] = [
    (no_backpressure, r"I1: 9 messages in 8 slots", 0, "there"),
    (credit_too_many, r"I1: 101 slots were returned, \d+ messages were sent", 0, "there"),
    (taken_twice, r"I2: my_tail is 0 after 1 frees", 1, "back"),
    (before_it_was_sent, r"I5: sent at (\d+) ps, arrived at \1 ps", 1, "back"),
    (overwritten, r"I7: message 0 changed in its slot", 1, "back"),
]


@pytest.mark.parametrize(("plant", "says", "rank", "direction"), INVARIANTS, ids=lambda v: getattr(v, "__name__", None))
def test_a_broken_invariant_is_named(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    plant: Callable[[pytest.MonkeyPatch], None],
    says: str,
    rank: int,
    direction: str,
) -> None:
    """With its place and time. Each ``plant`` is a bug in a part that the checker observes."""
    plant(monkeypatch)
    error = error_of(run_kernels(tmp_path, TEN, "--check-invariants", "--set", "defaults.credit_return_mode=fast_path"))
    assert error["kind"] == "InvariantViolation"
    assert (error["rank"], error["direction"]) == (rank, direction)
    assert re.match(says, error["message"]), error["message"]


def test_the_checker_does_not_change_a_valid_run(tmp_path: Path) -> None:
    """In every credit mode the checker is silent, and leaves times and data as they are."""
    for mode in ("fast_path", "fabric", "piggyback"):
        flags = ("--set", f"defaults.credit_return_mode={mode}", "--set", "defaults.n_slots=2")
        done = run_kernels(tmp_path, TEN, *flags, "--check-invariants")
        assert done.outcome.error is None
        assert done.document["digest"] == run_kernels(tmp_path, TEN, *flags).document["digest"]


def test_the_checker_is_optional(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the flag it costs nothing."""
    before_it_was_sent(monkeypatch)
    monkeypatch.delenv("AHBM_CHECK_INVARIANTS")
    done = run_kernels(tmp_path, TEN)
    assert done.outcome.error is None
    assert all(member.chip.sip.checker is None for member in done.members)


# --- what kernels do wrong ------------------------------------------------------------------------------------


FAILURES = {
    "F1 in recv": ("tl.recv('back', n, 'f16'); tl.recv('N', n, 'f16')", "IpcqInvalidDirection", "N"),
    "another size": ("tl.recv('back', n + 1, 'f16')", "IpcqTypeMismatch", "back"),
    "another size from anywhere": ("tl.recv(shape=n + 1, dtype='f16')", "IpcqTypeMismatch", "back"),
    "a future without a message": ("tl.load(ptr, n); tl.recv_async('back', n, 'f16')", "KernelError", "back"),
    "a future with a message": (
        "tl.recv_async('back', n, 'f16'); tl.recv('back', n, 'f16'); tl.recv('back', n, 'f16')",
        "KernelError",
        "back",
    ),
    "another size, not waited for": (
        "tl.recv_async('back', n, 'f16'); tl.recv_async('back', n + 1, 'f16'); tl.recv('back', n, 'f16')",
        "IpcqTypeMismatch",
        "back",
    ),
    "too large": (
        "x = tl.recv('back', n, 'f16'); x.array = x.array.repeat(257); tl.send('back', x)",
        "IpcqMessageTooLarge",
        "back",
    ),
}


def run_script(folder: Path, kernels: str, *names: str, flags: tuple[str, ...] = ()) -> Run:
    """Launch kernels one after the other on a ring of two cubes of one SIP, with the address of two rows of f16[4]."""
    launches = "".join(f"    torch.launch({name}, rows)\n" for name in names)
    worker = f"def worker(rank, world_size, torch):\n    rows = torch.zeros(2, 4, dtype='f16')\n{launches}"
    algorithm = "def kernel_args(world_size, n_elem):\n    return ()\ndef kernel(ptr, tl):\n    pass\n"
    wiring = ccl_file(folder, algorithm, topology="ring_1d", rank_per="cube")
    cubes = ("--sips", 1, "--set", "sip.cube_mesh.w=2", "--set", "sip.cube_mesh.h=1", "--no-verify-data")
    return run(*wiring, *cubes, *flags, script_file(folder, kernels + worker))


@pytest.mark.parametrize("what", FAILURES)
def test_kernel_errors_are_named(tmp_path: Path, what: str) -> None:
    """With rank, cube, PE, direction and time."""
    body, kind, direction = FAILURES[what]
    error = error_of(run_kernels(tmp_path, f"{SENDER}    {body}"))
    assert error["kind"] == kind
    assert (error["rank"], error["direction"]) == (1, direction)
    assert "(rank 1, cube 1, PE 0, at " in error["message"]


@pytest.mark.ideal
def test_a_future_of_one_kernel_takes_no_message_of_the_next(tmp_path: Path) -> None:
    """The first kernel leaves futures; the message of the second would complete one, and its recv would wait."""
    kernels = """
def first(ptr, tl):
    if tl.rank() == 0:
        tl.recv_async("W", 4, "f16")
        tl.recv_async("E", 4, "f16")

def second(ptr, tl):
    tl.send("E", tl.load(ptr + tl.program_id(1) * 8, 4))
    tl.recv("W", 4, "f16")
"""
    error = run_script(tmp_path, kernels, "first", "second").document["error"]
    assert (error["kind"], error["rank"], error["cube"], error["pe"]) == ("KernelError", 0, 0, 0)
    assert error["direction"] == "W"
    assert error["message"] == (
        "the kernel has ended without tl.wait for its recv_async W of f16[4], posted at 0 ps, "
        "which has no message, and for 1 more; call tl.wait for every future (rank 0, cube 0, PE 0, at 0 ps)"
    )


UNREAD = f"{SENDER}    for turn in range(7): tl.recv('back', n, 'f16')"
UNREAD_TEXT = "3 messages were sent and never received: 3 from rank 0 cube 1 PE 0 (there) to rank 1 cube 1 PE 0 (back)"


def test_unread_messages_are_an_error_with_the_checker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By number, sender and receiver; without it they are a notice."""
    done = run_kernels(tmp_path, UNREAD, "--check-invariants")
    error = done.document["error"]
    assert (done.outcome.exit_code, error["kind"], error["message"]) == (3, "IpcqUnreadMessages", UNREAD_TEXT)
    assert (error["rank"], error["cube"], error["pe"], error["direction"]) == (1, 1, 0, "back")
    ring = {"sender": (0, 1, 0), "sender_direction": "there", "receiver": (1, 1, 0), "receiver_direction": "back"}
    assert error["unread"] == [{**ring, "messages": 3}]
    monkeypatch.delenv("AHBM_CHECK_INVARIANTS")
    done = run_kernels(tmp_path, UNREAD)
    assert (done.outcome.exit_code, done.document["status"]) == (0, "ok")
    assert done.outcome.notices == [f"{UNREAD_TEXT}; with --check-invariants this is an error"]


def test_messages_in_flight_at_the_end_of_the_scripts_are_counted(tmp_path: Path) -> None:
    """Sent by the last step of the last kernel; all scripts have ended before they arrive."""
    kernels = "def last(ptr, tl):\n    tl.send('E', tl.load(ptr + tl.program_id(1) * 8, 4))\n"
    error = run_script(tmp_path, kernels, "last").document["error"]
    assert error["message"] == (
        "2 messages were sent and never received: 1 from rank 0 cube 0 PE 0 (E) to rank 0 cube 1 PE 0 (W), "
        "1 from rank 0 cube 1 PE 0 (E) to rank 0 cube 0 PE 0 (W)"
    )


def test_a_message_for_the_next_kernel_is_no_error(tmp_path: Path) -> None:
    kernels = """
def first(ptr, tl):
    tl.send("E", tl.load(ptr + tl.program_id(1) * 8, 4))

def second(ptr, tl):
    tl.recv("W", 4, "f16")
"""
    assert run_script(tmp_path, kernels, "first", "second").outcome.error is None


@pytest.mark.parametrize(
    ("kernels", "wait", "pointers", "peer", "missing"),
    [
        (f"{TEN}\n    tl.wait(tl.recv_async('back', n, 'f16'))", ("recv", 1, "back"), (0, 10, 10), [0, 1, 0], "send"),
        (f"{SENDER}    pass", ("send", 0, "there"), (8, 0, 0), [1, 1, 0], "recv"),
    ],
    ids=["F3, a receive without a send", "F5, a ring that is never read"],
)
def test_a_wait_without_an_end_is_a_deadlock(
    tmp_path: Path,
    kernels: str,
    wait: tuple[str, int, str],
    pointers: tuple[int, int, int],
    peer: list[int],
    missing: str,
) -> None:
    """Rank, cube, PE, direction, both ends' pointers, and the time."""
    done = run_kernels(tmp_path, kernels)
    error = done.document["error"]
    assert (done.outcome.exit_code, error["kind"]) == (3, "IpcqDeadlock")
    facts = error["deadlock"]
    ((found,), here, there) = facts["waits"], facts["waits"][0]["here"], facts["waits"][0]["there"]
    assert (found["op"], here["rank"], here["direction"], here["cube"], here["pe"]) == (*wait, 1, 0)
    assert (here["my_head"], here["my_tail"], there["my_head"]) == pointers
    assert found["peer"] == peer
    assert facts["time_ps"] == max(rank["sim_end_ps"] for rank in done.document["ranks"]) > 0
    assert f"missing: a {missing} by rank {peer[0]} cube 1 PE 0" in facts["reason"]
