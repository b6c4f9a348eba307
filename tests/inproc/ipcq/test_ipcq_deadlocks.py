"""Deadlock reports: circles and missing sends, with futures and receives from any direction.

Whole runs of two SIPs with kernels of their own. The reports of the simplest cases are in ``pure/test_diagnostics.py``.
"""

import re
from collections.abc import Callable
from typing import Any

import pytest

from ahbm_sim.testing import Done, Place, simulate

A, B, C = (0, 0, 0), (0, 1, 0), (1, 0, 0)
"""Two cubes of rank 0, and one of rank 1."""
TRIANGLE = {(A, "b"): B, (A, "c"): C, (B, "a"): A, (B, "c"): C, (C, "a"): A, (C, "b"): B}
ONE_WAY = {(A, "E"): B, (B, "E"): C, (C, "E"): A}
NAMES = {A: "rank 0 cube 0 PE 0", B: "rank 0 cube 1 PE 0", C: "rank 1 cube 0 PE 0"}
PLACE = re.compile(r"(, all)? at \S*tests/\S+\.py:\d+")
"""Where a kernel waits; in this file."""


def send(tl: Any, direction: str, count: int = 1) -> None:
    for _ in range(count):
        tl.send(direction, tl.zeros(1, "i32"))


def take(tl: Any, direction: str | None = None) -> None:
    tl.recv(direction, 1, "i32")


def later(tl: Any, direction: str) -> Any:
    return tl.recv_async(direction, 1, "i32")


def deadlock(*kernels: Callable[..., object], wires: dict[tuple[Place, str], Place] = TRIANGLE, **keys: object) -> Done:
    """Run a kernel on each of A, B and C, with rings of two slots, shuffled mail, and the checks of invariants."""
    chosen = {"defaults.n_slots": 2, **{f"defaults.{key}": value for key, value in keys.items()}}
    of = dict(zip((A, B, C), kernels, strict=True))
    done = simulate(of, wires=wires, sips=2, set=chosen, mail=0, check_invariants=True)
    assert done.kind == "IpcqDeadlock", done.error
    return done


def told(done: Done) -> dict[str, Any]:
    assert done.error is not None
    found: dict[str, Any] = done.error["deadlock"]
    return found


def reason(done: Done) -> str:
    """The cycle, or what is missing."""
    said = told(done)["reason"]
    assert said in done.output
    return PLACE.sub("", said)


def test_a_handle_that_is_never_used_is_named() -> None:
    """Rank 0's cube 0 sends three to cube 1, whose ring of two slots is full of messages that its kernel has received
    and never names."""

    def keeps(tl: Any) -> None:
        _kept = [tl.recv("a", 1, "i32") for _ in range(3)]

    done = deadlock(lambda tl: send(tl, "b", 3), keeps, nothing, latch="in_place")
    assert done.error is not None
    assert done.error["message"].startswith(
        f"{NAMES[B]} has received 2 of the 2 slots of its ring a into handles that no command has named: h0, h1 "
        "(latch: in_place); name a handle in a command, or tl.release the handle; else raise defaults.n_slots, or set "
        "defaults.latch=copy; 2 PEs wait"
    )


def waits_before_it_sends(before: str, after: str, other: str) -> Callable[..., None]:
    """With a future that it waits for, and one of another direction, which is not reported."""

    def body(tl: Any) -> None:
        future = later(tl, before)
        later(tl, other)
        tl.wait(future)
        send(tl, after)

    return body


def nothing(tl: Any) -> None:
    """Ends at once."""


AROUND = f"a cycle: {NAMES[A]} (recv {{}}) -> {NAMES[C]} (recv {{}}) -> {NAMES[B]} (recv {{}}) -> {NAMES[A]}"
CYCLES = {
    "of futures, two across SIPs": (
        *((waits_before_it_sends(*"cbb"), waits_before_it_sends(*"acc"), waits_before_it_sends(*"baa")), TRIANGLE),
        *(AROUND.format(*"cba"), 3),
    ),
    # Each has two edges in the report.
    "of receives from any direction": ((take, take, take), TRIANGLE, f"a cycle: {NAMES[A]} (recv b) -> {NAMES[B]}", 6),
    # Against the sense of a unidirectional ring: any direction means those that receive.
    "of receives from those that send": ((take, take, take), ONE_WAY, AROUND.format(*"WWW"), 3),
    # A waits for B or C, and B for A; but C has ended, and could have sent to A.
    "none, where there is another sender": (
        *((take, lambda tl: take(tl, "a"), nothing), TRIANGLE),
        f"missing: a send by {NAMES[C]}, which waits for nothing, to {NAMES[A]} (its recv b or c)",
        3,
    ),
}


@pytest.mark.parametrize("name", CYCLES)
def test_a_cycle_is_named(name: str) -> None:
    kernels, wires, expected, waits = CYCLES[name]
    done = deadlock(*kernels, wires=wires)
    assert reason(done).startswith(expected)
    assert len(told(done)["waits"]) == waits
    assert (told(done)["cycle"] == []) == expected.startswith("missing")


def test_a_future_without_a_send() -> None:
    """Two futures, one message, which the first one has taken: the second is missing."""

    def two(tl: Any) -> None:
        futures = [later(tl, "b"), later(tl, "b")]
        for future in reversed(futures):
            tl.wait(future)

    done = deadlock(two, lambda tl: send(tl, "a"), nothing)
    assert reason(done) == f"missing: a send by {NAMES[B]}, which waits for nothing, to {NAMES[A]} (its recv b)"
    assert "unread" not in done.output
    (wait,) = told(done)["waits"]
    assert (wait["here"]["my_tail"], wait["here"]["peer_head_cache"], wait["there"]["my_head"]) == (1, 1, 1)


def test_messages_without_a_receive() -> None:
    """A waits for B by name; C has sent to A twice, and A to B, which is B's affair. A receive from any direction asks
    for all.
    """
    done = deadlock(lambda tl: [send(tl, "b"), take(tl, "b")], nothing, lambda tl: send(tl, "a", 2))
    assert "recv b; unread messages from c; peer " in PLACE.sub("", done.output)
    assert len(re.findall("(?m)^  rank .* unread messages", done.output)) == 1
    drained = deadlock(lambda tl: [take(tl) for _ in range(3)], nothing, lambda tl: send(tl, "a", 2))
    assert "unread" not in drained.output


def test_a_sender_whose_peer_waits_for_another() -> None:
    """B fills A's ring and is blocked; A waits for C, which has ended: C's send is missing, and A has messages."""
    done = deadlock(lambda tl: take(tl, "c"), lambda tl: send(tl, "a", 3), nothing)
    assert reason(done) == f"missing: a send by {NAMES[C]}, which waits for nothing, to {NAMES[A]} (its recv c)"
    assert "perhaps a wrong direction: rank 0 cube 0 PE 0 waits in recv c at " in done.output
    lines = PLACE.sub("", done.output)
    assert f"  {NAMES[A]}: recv c; unread messages from b; peer {NAMES[C]}" in lines
    assert f"  {NAMES[B]}: send a; peer {NAMES[A]}" in lines


@pytest.mark.parametrize("mode", ["fast_path", "fabric", "piggyback", "auto"])
@pytest.mark.parametrize("backpressure", ["sleep", "poll"])
def test_the_report_does_not_depend_on_the_mode(mode: str, backpressure: str) -> None:
    """Two PEs that send before they receive, one message more than slots."""

    def kernel(direction: str) -> Callable[..., object]:
        return lambda tl: (send(tl, direction, 3), take(tl, direction))

    wires = {(A, "c"): C, (C, "a"): A}
    keys = {"credit_return_mode": mode, "backpressure": backpressure}
    done = deadlock(kernel("c"), nothing, kernel("a"), wires=wires, **keys)
    assert reason(done) == f"a cycle: {NAMES[A]} (send c) -> {NAMES[C]} (send a) -> {NAMES[A]}"
