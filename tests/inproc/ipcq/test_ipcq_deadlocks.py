"""Deadlock reports: circles and missing sends, with futures and receives from any direction.

Whole runs of two SIPs with kernels of their own. The reports of the simplest cases are in ``pure/test_diagnostics.py``.
"""

import re
from collections.abc import Callable
from typing import Any

import pytest
from hardware import WiredPlan, config, tcm
from sips import run_sips, spawn

from launcher.report.outcome import RunError
from sipsim.ccl.install import PePlace
from sipsim.ccl.neighbours import NeighbourTable
from sipsim.node.sip_node import SipNode
from sipsim.tl.language import TL

A, B, C = PePlace(0, 0, 0), PePlace(0, 1, 0), PePlace(1, 0, 0)
"""Two cubes of rank 0, and one of rank 1."""
TRIANGLE: NeighbourTable = {0: {"b": 1, "c": 2}, 1: {"a": 0, "c": 2}, 2: {"a": 0, "b": 1}}
NAMES = {A: "rank 0 cube 0 PE 0", B: "rank 0 cube 1 PE 0", C: "rank 1 cube 0 PE 0"}


def send(tl: TL, direction: str, count: int = 1) -> None:
    sip, cube = tl.program_id(2), tl.program_id(1)
    for _ in range(count):
        tl.send(direction, src_addr=tcm(cube, 0, sip=sip), shape=1, dtype="i32")


def take(tl: TL, direction: str | None = None) -> None:
    tl.recv(direction, 1, "i32")


def later(tl: TL, direction: str) -> Any:
    return tl.recv_async(direction, 1, "i32")


def deadlock(
    kernels: list[Callable[[TL], object]], table: NeighbourTable = TRIANGLE, settings: dict[str, Any] | None = None
) -> RunError:
    """Run a kernel on each of A, B and C, with rings of two slots; returns the error."""
    settings = {"sip.cube_mesh": {"w": 2, "h": 1}, "defaults.n_slots": 2, **(settings or {})}
    plan = WiredPlan(config(settings), [A, B, C][: len(table)], table)

    def start(member: SipNode) -> None:
        for place, kernel in zip((A, B, C), kernels, strict=True):
            if place.sip == member.rank:
                spawn(member.chip.sip, place.cube, place.pe, kernel)  # type: ignore[arg-type]

    error = run_sips(plan, start).outcome.error
    assert error is not None
    assert error.kind == "IpcqDeadlock", error.message
    return error


PLACE = re.compile(r"(, all)? at tests/\S+\.py:\d+")
"""Where a kernel waits; in this file."""


def without_places(text: str) -> str:
    """The files and lines of this file's own calls left out."""
    return PLACE.sub("", text)


def test_a_handle_that_is_never_used_is_named() -> None:
    """Rank 0's cube 0 sends three to cube 1, whose ring of two slots is full of messages that its kernel has received
    and never names."""

    def keeps(tl: TL) -> None:
        _kept = [tl.recv("a", 1, "i32") for _ in range(3)]

    error = deadlock([lambda tl: send(tl, "b", 3), keeps, lambda tl: None], settings={"defaults.latch": "in_place"})
    assert error.message.startswith(
        f"{NAMES[B]} has received 2 of the 2 slots of its ring a into handles that no command has named: h0, h1 "
        "(latch: in_place); name one in a command, or tl.release it; else give defaults.n_slots more, or "
        "defaults.latch copy; 2 PEs wait"
    )


def reason(error: RunError) -> str:
    """The cycle, or what is missing; it stands in the first two lines."""
    said: str = error.facts["deadlock"]["reason"]
    assert said in f"{error.message}\n{error.detail.splitlines()[0]}"
    return without_places(said)


def test_a_cycle_of_futures() -> None:
    """Each waits for a future before it sends, two across SIPs. A future that is not waited for is not reported."""

    def kernel(before: str, after: str, other: str) -> Callable[[TL], object]:
        def body(tl: TL) -> None:
            future = later(tl, before)
            later(tl, other)
            tl.wait(future)
            send(tl, after)

        return body

    error = deadlock([kernel("c", "b", "b"), kernel("a", "c", "c"), kernel("b", "a", "a")])
    assert reason(error) == (
        f"a cycle: {NAMES[A]} (recv c) -> {NAMES[C]} (recv b) -> {NAMES[B]} (recv a) -> {NAMES[A]}"
    )
    assert len(error.facts["deadlock"]["waits"]) == 3


def test_a_cycle_through_receives_from_any_direction() -> None:
    """All three receive from any direction. Each has two edges in the report."""
    error = deadlock([take, take, take])
    assert reason(error).startswith("a cycle: rank 0 cube 0 PE 0 (recv b) -> rank 0 cube 1 PE 0 (recv a) -> ")
    assert len(error.facts["deadlock"]["waits"]) == 6
    assert "; 3 PEs wait and nothing can happen any more, at " in error.message


def test_a_pe_with_another_sender_is_in_no_cycle() -> None:
    """A waits for B or C, and B for A; but C has ended, and could have sent to A. That is what is missing."""
    error = deadlock([take, lambda tl: take(tl, "a"), lambda _tl: None])
    assert reason(error) == f"missing: a send by {NAMES[C]}, which waits for nothing, to {NAMES[A]} (its recv b or c)"
    assert error.facts["deadlock"]["cycle"] == []
    assert f"  {NAMES[B]}: recv a; peer {NAMES[A]}" in without_places(error.detail), "and who follows from it"


def test_a_future_without_a_send() -> None:
    """Two futures, one message, which the first one has taken: the second is missing."""

    def two(tl: TL) -> None:
        futures = [later(tl, "b"), later(tl, "b")]
        for future in reversed(futures):
            tl.wait(future)

    error = deadlock([two, lambda tl: send(tl, "a"), lambda _tl: None])
    assert reason(error) == f"missing: a send by {NAMES[B]}, which waits for nothing, to {NAMES[A]} (its recv b)"
    assert "unread" not in error.detail
    (wait,) = error.facts["deadlock"]["waits"]
    assert (wait["here"]["my_tail"], wait["here"]["peer_head_cache"], wait["there"]["my_head"]) == (1, 1, 1)


def test_messages_without_a_receive() -> None:
    """A waits for B by name; C has sent to A twice, and A to B, which is B's affair. A receive from any direction asks
    for all.
    """
    error = deadlock([lambda tl: [send(tl, "b"), take(tl, "b")], lambda _tl: None, lambda tl: send(tl, "a", 2)])
    assert "recv b; unread messages from c; peer " in without_places(error.detail)
    assert error.detail.count("unread messages") == 1
    drained = deadlock([lambda tl: [take(tl) for _ in range(3)], lambda _tl: None, lambda tl: send(tl, "a", 2)])
    assert "unread" not in drained.detail


def test_a_sender_whose_peer_waits_for_another() -> None:
    """B fills A's ring and is blocked; A waits for C, which has ended: C's send is missing, and A has messages."""
    error = deadlock([lambda tl: take(tl, "c"), lambda tl: send(tl, "a", 3), lambda _tl: None])
    assert reason(error) == f"missing: a send by {NAMES[C]}, which waits for nothing, to {NAMES[A]} (its recv c)"
    assert error.message.startswith("perhaps a wrong direction: rank 0 cube 0 PE 0 waits in recv c at ")
    assert f"  {NAMES[A]}: recv c; unread messages from b; peer {NAMES[C]}" in without_places(error.detail)
    assert f"  {NAMES[B]}: send a; peer {NAMES[A]}" in without_places(error.detail)


ONE_WAY: NeighbourTable = {0: {"E": 1}, 1: {"E": 2}, 2: {"E": 0}}


def test_any_direction_means_those_that_receive() -> None:
    """In a unidirectional ring each waits for the one before it: a circle against the ring's sense, along W alone."""
    error = deadlock([take, take, take], ONE_WAY)
    assert reason(error) == (
        f"a cycle: {NAMES[A]} (recv W) -> {NAMES[C]} (recv W) -> {NAMES[B]} (recv W) -> {NAMES[A]}"
    )
    assert len(error.facts["deadlock"]["waits"]) == 3


@pytest.mark.parametrize("mode", ["fast_path", "fabric", "piggyback", "auto"])
@pytest.mark.parametrize("backpressure", ["sleep", "poll"])
def test_the_report_does_not_depend_on_the_mode(mode: str, backpressure: str) -> None:
    """Two PEs that send before they receive, one message more than slots."""
    settings = {"defaults.credit_return_mode": mode, "defaults.backpressure": backpressure, "defaults.n_slots": 2}
    plan = WiredPlan(config({"sip.cube_mesh": {"w": 2, "h": 1}, **settings}), [A, C], {0: {"c": 1}, 1: {"a": 0}})

    def start(member: SipNode) -> None:
        direction = "ca"[member.rank]
        spawn(member.chip.sip, 0, 0, lambda tl: [send(tl, direction, 3), take(tl, direction)])  # type: ignore[arg-type,return-value]

    error = run_sips(plan, start).outcome.error
    assert error is not None
    assert reason(error) == f"a cycle: {NAMES[A]} (send c) -> {NAMES[C]} (send a) -> {NAMES[A]}"
