"""Errors of queues, with place and time, in the result of a whole run of two SIPs.

The invariants of ADR-0023 D14 and ADR-0025 D6: each is broken in the real parts, and the checker says which it was.
Then what kernels do wrong: F1 to F5.
"""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from runs import Run, ccl_file, run, script_file

from sipsim.engine import Engine
from sipsim.io.messages import MessageSender
from sipsim.ipcq.latch import TakenSlot
from sipsim.ipcq.messages import IpcqCreditMetadata, IpcqDmaToken
from sipsim.ipcq.pe_ipcq import PeIpcq
from sipsim.ipcq.queue_pair import QueuePair
from sipsim.ipcq.requests import ReceiveRequest
from sipsim.ipcq.slots import Slots
from sipsim.memory.store import MemoryStore

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


def no_wrap(patch: pytest.MonkeyPatch) -> None:
    """The slot of a message counted on past the ring."""
    patch.setattr(
        QueuePair, "next_tx_slot_pa", lambda queue: queue.peer.rx_base_pa + queue.my_head * queue.peer.slot_size
    )


def wrong_slot(patch: pytest.MonkeyPatch) -> None:
    """A message written one slot after its address."""
    real = MessageSender.carry_token

    def carry(sender: MessageSender, queue: QueuePair, token: IpcqDmaToken, *more: Any) -> None:
        real(sender, queue, token._replace(dst_addr=token.dst_addr + queue.peer.slot_size), *more)

    patch.setattr(MessageSender, "carry_token", carry)


def taken_twice(patch: pytest.MonkeyPatch) -> None:
    """A tail that does not move on."""
    real = Slots._was_read

    def was_read(slots: Slots, taken: TakenSlot, *more: Any) -> None:
        slots._queues[taken.direction].my_tail -= 1
        real(slots, taken, *more)

    patch.setattr(Slots, "_was_read", was_read)


def freed_unread(patch: pytest.MonkeyPatch) -> None:
    """A slot that is given back once more after its receive."""
    real = Slots._was_read

    def was_read(slots: Slots, taken: TakenSlot, *more: Any) -> None:
        real(slots, taken, *more)
        slots._queues[taken.direction].in_use.append(taken)
        real(slots, taken, *more, unread=True)

    patch.setattr(Slots, "_was_read", was_read)


def sent_again(patch: pytest.MonkeyPatch) -> None:
    """Each message sent twice."""
    real = MessageSender.carry_token

    def carry(sender: MessageSender, queue: QueuePair, token: IpcqDmaToken, *more: Any) -> None:
        real(sender, queue, token, *more)
        real(sender, queue, token, *more)

    patch.setattr(MessageSender, "carry_token", carry)


def head_goes_back(patch: pytest.MonkeyPatch) -> None:
    """A head that is counted modulo the ring's slots."""
    real = QueuePair.next_tx_slot_pa

    def next_slot(queue: QueuePair) -> int:
        queue.my_head %= queue.peer.n_slots
        return real(queue)

    patch.setattr(QueuePair, "next_tx_slot_pa", next_slot)


def tail_goes_back(patch: pytest.MonkeyPatch) -> None:
    """A credit whose number is applied unchecked, and the first one arrives again."""
    real = PeIpcq.credit
    first: list[IpcqCreditMetadata] = []

    def credit(ipcq: PeIpcq, metadata: IpcqCreditMetadata) -> None:
        first.append(metadata)
        ipcq.generations.live[0].by_peer_rx[metadata.dst_rx_base_pa].peer_tail_cache = 0
        real(ipcq, metadata if len(first) < 3 else first[0])

    patch.setattr(PeIpcq, "credit", credit)


def credit_too_many(patch: pytest.MonkeyPatch) -> None:
    """Credits that count one slot more than was freed."""
    real = PeIpcq.credit
    patch.setattr(PeIpcq, "credit", lambda ipcq, c: real(ipcq, c._replace(consumer_seq=c.consumer_seq + 100)))


def before_it_was_sent(patch: pytest.MonkeyPatch) -> None:
    """A message whose ``sent_ps`` is its arrival."""
    real = PeIpcq.arrive
    patch.setattr(PeIpcq, "arrive", lambda ipcq, token: real(ipcq, token._replace(sent_ps=ipcq._engine.now_ps)))


def pointer_first(patch: pytest.MonkeyPatch) -> None:
    """The pointer moves at once, the data come a picosecond later."""
    real = PeIpcq.arrive

    def arrive(ipcq: PeIpcq, token: IpcqDmaToken) -> None:
        memory, engine = ipcq._memory, ipcq._engine
        ipcq._memory = _Late(memory, engine)  # type: ignore[assignment]
        real(ipcq, token)
        ipcq._memory = memory

    patch.setattr(PeIpcq, "arrive", arrive)


class _Late:
    def __init__(self, memory: MemoryStore, engine: Engine) -> None:
        self._memory = memory
        self._engine = engine

    def write(self, address: int, data: bytes) -> None:
        self._engine.at(self._engine.now_ps + 1, lambda: self._memory.write(address, bytes(data)))

    def read(self, address: int, nbytes: int) -> bytes:
        return self._memory.read(address, nbytes)


def overwritten(patch: pytest.MonkeyPatch) -> None:
    """Something writes into a slot between the arrival and the receive."""
    real = Slots.take

    def take(slots: Slots, queue: QueuePair, receive: ReceiveRequest, cause: int) -> None:
        slots._memory.write(queue.next_rx_slot_pa() + 3, b"\x55")
        real(slots, queue, receive, cause)

    patch.setattr(Slots, "take", take)


INVARIANTS: list[tuple[Callable[[pytest.MonkeyPatch], None], str, int, str]] = [
    (no_backpressure, r"I1: 9 messages in 8 slots", 0, "there"),
    (credit_too_many, r"I1: 101 slots were returned, \d+ messages were sent", 0, "there"),
    (taken_twice, r"I2: my_tail is 0, 1 were freed", 1, "back"),
    (freed_unread, r"I1: a slot was freed before its message was taken", 1, "back"),
    (sent_again, r"I2: message 0 arrived in direction back of .* when 1 was next", 1, "back"),
    (head_goes_back, r"I2: my_head is 1, 9 were sent", 0, "there"),
    (tail_goes_back, r"I2: peer_tail_cache went back from 2 to 1", 0, "there"),
    (before_it_was_sent, r"I5: sent at (\d+) ps, arrived at \1 ps", 1, "back"),
    (pointer_first, r"I6: message 0 is announced and not in its slot", 1, "back"),
    (overwritten, r"I7: message 0 changed in its slot", 1, "back"),
    (no_wrap, r"I3.1: 0x[0-9a-f]+ is not slot 0x[0-9a-f]+", 0, "there"),
    (wrong_slot, r"I3.1: 0x[0-9a-f]+ is not slot 0x[0-9a-f]+", 1, "back"),
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
    "F1 in send": ("tl.send('N', tl.recv('back', n, 'f16'))", "IpcqInvalidDirection", "N"),
    "F1 in recv_async": ("tl.recv('back', n, 'f16'); tl.recv_async('N', n, 'f16')", "IpcqInvalidDirection", "N"),
    "another size": ("tl.recv('back', n + 1, 'f16')", "IpcqTypeMismatch", "back"),
    "another size, later": ("tl.wait(tl.recv_async('back', n + 1, 'f16'))", "IpcqTypeMismatch", "back"),
    "another size from anywhere": ("tl.recv(shape=n + 1, dtype='f16')", "IpcqTypeMismatch", "back"),
    "another size to copy": ("tl.recv('back', n - 1, dst_addr=ptr)", "IpcqTypeMismatch", "back"),
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
        "which has no message, and 1 more; wait for every future (rank 0, cube 0, PE 0, at 0 ps)"
    )


UNREAD = f"{SENDER}    for turn in range(7): tl.recv('back', n, 'f16')"
UNREAD_TEXT = "3 messages were sent and never received: 3 from rank 0 cube 1 PE 0 (there) to rank 1 cube 1 PE 0 (back)"


def test_unread_messages_are_an_error_with_the_checker(tmp_path: Path) -> None:
    """By number, sender and receiver."""
    done = run_kernels(tmp_path, UNREAD, "--check-invariants")
    error = done.document["error"]
    assert (done.outcome.exit_code, error["kind"], error["message"]) == (3, "IpcqUnreadMessages", UNREAD_TEXT)
    assert (error["rank"], error["cube"], error["pe"], error["direction"]) == (1, 1, 0, "back")
    ring = {"sender": (0, 1, 0), "sender_direction": "there", "receiver": (1, 1, 0), "receiver_direction": "back"}
    assert error["unread"] == [{**ring, "messages": 3}]


def test_unread_messages_are_a_notice_without_the_checker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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


@pytest.mark.parametrize("receive", ["tl.recv('back', n // 2, 'f32')", "tl.recv('back', (2, n // 2), 'f16')"])
def test_f2_raises_under_strict_validation_only(tmp_path: Path, receive: str) -> None:
    """Another type or shape of the same size."""
    kernels = f"{SENDER}    for turn in range(10): {receive}"
    assert run_kernels(tmp_path, kernels).outcome.error is None
    error = error_of(run_kernels(tmp_path, kernels, "--set", "defaults.strict_validation=true"))
    assert (error["kind"], error["rank"], error["direction"]) == ("IpcqTypeMismatch", 1, "back")


def deadlock_of(done: Run) -> dict[str, Any]:
    error = done.document["error"]
    assert (done.outcome.exit_code, error["kind"]) == (3, "IpcqDeadlock")
    facts: dict[str, Any] = error["deadlock"]
    return facts


def test_f3_a_receive_without_a_send(tmp_path: Path) -> None:
    """Rank, cube, PE, direction, both ends' pointers, and the time."""
    done = run_kernels(tmp_path, f"{TEN}\n    tl.wait(tl.recv_async('back', n, 'f16'))")
    facts = deadlock_of(done)
    ((wait,), here) = facts["waits"], facts["waits"][0]["here"]
    assert (wait["op"], here["rank"], here["cube"], here["pe"], here["direction"]) == ("recv", 1, 1, 0, "back")
    assert (here["my_tail"], wait["there"]["my_head"], wait["peer"]) == (10, 10, [0, 1, 0])
    assert facts["time_ps"] == max(rank["sim_end_ps"] for rank in done.document["ranks"]) > 0
    assert "missing: a send by rank 0 cube 1 PE 0" in facts["reason"]


def test_f5_a_ring_that_is_never_read(tmp_path: Path) -> None:
    """Full, for ever: the send waits."""
    facts = deadlock_of(run_kernels(tmp_path, f"{SENDER}    pass"))
    ((wait,), here) = facts["waits"], facts["waits"][0]["here"]
    assert (wait["op"], here["rank"], here["cube"], here["pe"], here["direction"]) == ("send", 0, 1, 0, "there")
    assert (here["my_head"], here["peer_tail_cache"], wait["there"]["peer_head_cache"]) == (8, 0, 8)
    assert "missing: a recv by rank 1 cube 1 PE 0" in facts["reason"]
