"""Errors of queues, with place and time, in the result of a whole run of two SIPs.

The invariants of ADR-0023 D14 and ADR-0025 D6: each is broken in the real parts, and the checker says which it was.
Then what kernels do wrong: F1 to F5.
"""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from runs import Run, ccl_file, run

from sipsim.engine import Engine
from sipsim.io.carrier import Carrier
from sipsim.ipcq.messages import IpcqCreditMetadata, IpcqDmaToken
from sipsim.ipcq.pe_ipcq import PeIpcq
from sipsim.ipcq.queue_pair import QueuePair
from sipsim.ipcq.receives import Receive
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


def told(done: Run) -> dict[str, Any]:
    """The error of the result file: kind, rank, place, direction and time of something that failed on a PE."""
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
    real = Carrier.carry_token

    def carry(carrier: Carrier, queue: QueuePair, token: IpcqDmaToken, read_pa: int | None) -> None:
        real(carrier, queue, token._replace(dst_addr=token.dst_addr + queue.peer.slot_size), read_pa)

    patch.setattr(Carrier, "carry_token", carry)


def taken_twice(patch: pytest.MonkeyPatch) -> None:
    """A tail that does not move on."""
    real = PeIpcq._free_slot

    def free(ipcq: PeIpcq, queue: QueuePair, receive: Receive) -> None:
        queue.my_tail -= 1
        real(ipcq, queue, receive)

    patch.setattr(PeIpcq, "_free_slot", free)


def freed_unread(patch: pytest.MonkeyPatch) -> None:
    """A slot that is given back once more after its receive."""
    real = PeIpcq._free_slot

    def free(ipcq: PeIpcq, queue: QueuePair, receive: Receive) -> None:
        real(ipcq, queue, receive)
        real(ipcq, queue, Receive(0))

    patch.setattr(PeIpcq, "_free_slot", free)


def sent_again(patch: pytest.MonkeyPatch) -> None:
    """Each message sent twice."""
    real = Carrier.carry_token

    def carry(carrier: Carrier, queue: QueuePair, token: IpcqDmaToken, read_pa: int | None) -> None:
        real(carrier, queue, token, read_pa)
        real(carrier, queue, token, read_pa)

    patch.setattr(Carrier, "carry_token", carry)


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
        ipcq._by_peer_rx[metadata.dst_rx_base_pa].peer_tail_cache = 0
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
    real = PeIpcq._take

    def take(ipcq: PeIpcq, queue: QueuePair, receive: Receive) -> None:
        ipcq._memory.write(queue.next_rx_slot_pa() + 3, b"\x55")
        real(ipcq, queue, receive)

    patch.setattr(PeIpcq, "_take", take)


INVARIANTS: list[tuple[Callable[[pytest.MonkeyPatch], None], str, int, str]] = [
    (no_backpressure, r"I1: 9 messages in 8 slots", 0, "there"),
    (credit_too_many, r"I1: 101 slots were returned, \d+ messages were sent", 0, "there"),
    (taken_twice, r"I2: my_tail is 0, 1 were freed", 1, "back"),
    (freed_unread, r"I1: a slot was freed before its message was taken", 1, "back"),
    (sent_again, r"I2: message 0 arrived in direction back of .* when 1 was next", 1, "back"),
    (head_goes_back, r"I2: sent 0 after 7", 0, "there"),
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
    """Which, where and when. Each plant is a bug in a part that the checker stands beside."""
    plant(monkeypatch)
    error = told(run_kernels(tmp_path, TEN, "--check-invariants", "--set", "defaults.credit_return_mode=fast_path"))
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
    assert all(member.sip.checker is None for member in done.members)


# --- what kernels do wrong ------------------------------------------------------------------------------------


FAILURES = {
    "F1 in recv": ("tl.recv('back', n, 'f16'); tl.recv('N', n, 'f16')", "IpcqInvalidDirection", "N"),
    "F1 in send": ("tl.send('N', tl.recv('back', n, 'f16'))", "IpcqInvalidDirection", "N"),
    "F1 in recv_async": ("tl.recv('back', n, 'f16'); tl.recv_async('N', n, 'f16')", "IpcqInvalidDirection", "N"),
    "another size": ("tl.recv('back', n + 1, 'f16')", "IpcqTypeMismatch", "back"),
    "another size, later": ("tl.wait(tl.recv_async('back', n + 1, 'f16'))", "IpcqTypeMismatch", "back"),
    "another size from anywhere": ("tl.recv(shape=n + 1, dtype='f16')", "IpcqTypeMismatch", "back"),
    "another size to copy": ("tl.recv('back', n - 1, dst_addr=ptr)", "IpcqTypeMismatch", "back"),
    "too large": (
        "x = tl.recv('back', n, 'f16'); x.array = x.array.repeat(257); tl.send('back', x)",
        "IpcqMessageTooLarge",
        "back",
    ),
}


@pytest.mark.parametrize("what", FAILURES)
def test_kernel_errors_are_named(tmp_path: Path, what: str) -> None:
    """With rank, cube, PE, direction and time."""
    body, kind, direction = FAILURES[what]
    error = told(run_kernels(tmp_path, f"{SENDER}    {body}"))
    assert error["kind"] == kind
    assert (error["rank"], error["direction"]) == (1, direction)
    assert "(rank 1, cube 1, PE 0, at " in error["message"]


@pytest.mark.parametrize("receive", ["tl.recv('back', n // 2, 'f32')", "tl.recv('back', (2, n // 2), 'f16')"])
def test_f2_raises_under_strict_validation_only(tmp_path: Path, receive: str) -> None:
    """Another type or shape of the same size."""
    kernels = f"{SENDER}    for turn in range(10): {receive}"
    assert run_kernels(tmp_path, kernels).outcome.error is None
    error = told(run_kernels(tmp_path, kernels, "--set", "defaults.strict_validation=true"))
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
