"""The fabric under load: rings without a deadlock and with one that is named, credits that settle, and planted bugs."""

import json
from typing import Any

import pytest
from fabric_runs import SCRIPTS, flags, left, passed, slots_of
from runs import Run, run

from sipsim.chips.tensix.fabric.channels import ReceiverChannel
from sipsim.chips.tensix.fabric.packet import Direction, Hop
from sipsim.chips.tensix.fabric.router import Router

BUBBLE, DATELINE = "2025-11", "2025-03"
NO_DATELINE = ("--set", "system.chip_params.fabric.revisions.2025-03.avoidance=none")


def run_ring(
    sips: int, seed: int, packets: int, revision: str, *more: object, nbytes: int = 512, slots: int = 0, **asked: Any
) -> Run:
    """Random packets on a ring, some of them with more chips than one. ``slots``: of each channel, few to fill them."""
    knobs = {"seed": seed, "packets": packets, "revision": revision, "nbytes": nbytes, **asked}
    return run(*flags(sips), *more, *slots_of(revision, slots), SCRIPTS / "fabric_random.py", json.dumps(knobs))


# --- rings ------------------------------------------------------------------------------------------------------

CASES = [(3, 2, 1), (4, 8, 2), (5, 4, 3), (6, 3, 4), (7, 2, 5), (8, 2, 6)]
"""Chips, slots and seed."""
EACH = 420
"""Packets of a run, both ways: over 5,000 for all cases and both revisions (``--all``)."""


@pytest.mark.parametrize(
    ("sips", "slots", "seed", "revision"),
    [
        *((*case, (BUBBLE, DATELINE)[at % 2]) for at, case in enumerate(CASES)),
        *(pytest.param(*case, (DATELINE, BUBBLE)[at % 2], marks=pytest.mark.slow) for at, case in enumerate(CASES)),
    ],
)
def test_random_packets_come_on_a_ring(sips: int, slots: int, seed: int, revision: str) -> None:
    passed(run_ring(sips, seed, EACH // sips // 2, revision, slots=slots))


@pytest.mark.slow
@pytest.mark.parametrize("revision", [BUBBLE, DATELINE])
@pytest.mark.parametrize("sips", range(3, 9))
@pytest.mark.parametrize("seed", range(3))
def test_more_random_packets_come_on_a_ring(sips: int, seed: int, revision: str) -> None:
    """Some 1200 each."""
    passed(run_ring(sips, seed, 600 // sips, revision, slots=(2, 4, 8)[seed]))


def deadlock(done: Run) -> list[str]:
    error = done.document["error"]
    assert error is not None, "it has ended"
    assert error["kind"] == "Deadlock"
    cycle: list[str] = error["deadlock"]["channel_cycle"]
    return cycle


@pytest.mark.parametrize(("sips", "slots"), [(4, 2), (4, 8), (6, 2)])
def test_without_avoidance_a_ring_names_its_cycle(sips: int, slots: int) -> None:
    done = run_ring(sips, 1, 100, DATELINE, *NO_DATELINE, slots=slots, way="E", reach=0)
    cycle = deadlock(done)
    assert len(cycle) % sips == 0
    assert {name.split()[1] for name in cycle} == {str(sip) for sip in range(sips)}, "all chips are in it"
    kinds = [name.split()[3] for name in cycle]
    assert set(kinds) == {"sender", "receiver"}
    assert done.document["error"]["message"].startswith(f"a cycle of {len(cycle)} channels: ")
    texts = {each["text"] for each in done.document["error"]["deadlock"]["blocked"] if each["name"] in cycle}
    assert any("slots hold packets, the first for SIP " in text for text in texts)


@pytest.mark.parametrize("revision", [BUBBLE, DATELINE])
def test_the_load_that_blocks_a_ring_passes_with_avoidance(revision: str) -> None:
    passed(run_ring(4, 1, 100, revision, slots=8, way="E", reach=0))


def workers(done: Run) -> list[object]:
    """What workers of all chips have at the end, but for the words of their connections."""
    found: list[object] = []
    for member in done.members:
        chip = member.chip
        cores = [chip.metal.workers[index] for index in (0, 1, -1)]
        found += [chip.tiles.memory(core).read(0x10000, 0x100000) for core in cores]
    return found


@pytest.mark.parametrize("revision", [BUBBLE, DATELINE])
def test_a_link_that_goes_down_loses_nothing(revision: str) -> None:
    """Twice in the middle of 80 packets: later, and the same data."""
    plain = passed(run_ring(4, 1, 20, revision, reach=2))
    faults = ("--fault", "link:0.E@2us:15us", "--fault", "link:2.W@30us:5us")
    done = passed(run_ring(4, 1, 20, revision, *faults, reach=2))
    assert workers(done) == workers(plain)
    assert max(end_ps for *_, end_ps in done.results()) > max(end_ps for *_, end_ps in plain.results()) + 5_000_000


@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 6))])
@pytest.mark.parametrize("revision", [BUBBLE, DATELINE])
def test_later_latencies_change_no_data(seed: int, revision: str) -> None:
    """Orders that a run does not show otherwise: packets, credits, handshakes and kernels that come later."""
    jitter = ("--set", f"system.chip_params.jitter.seed={seed}")
    assert workers(passed(run_ring(4, 1, 20, revision, *jitter, reach=2))) == workers(
        passed(run_ring(4, 1, 20, revision, reach=2))
    )


# --- planted bugs -----------------------------------------------------------------------------------------------


def credit_given_twice(patch: pytest.MonkeyPatch) -> None:
    send = Router.send_credits

    def twice(self: Router, vc: int, completed: Any, acked: Any, at_ps: int) -> None:
        send(self, vc, [2 * each for each in completed], acked, at_ps)

    patch.setattr(Router, "send_credits", twice)


def forwarded_without_a_local_write(patch: pytest.MonkeyPatch) -> None:
    from sipsim.chips.tensix.fabric import router as machine

    next_hop = machine.next_hop

    def uncoupled(header: bytes, own: Direction) -> Hop:
        hop = next_hop(header, own)
        return hop._replace(is_local=False) if hop.ways else hop

    patch.setattr(machine, "next_hop", uncoupled)


def completed_before_the_write_has_left(patch: pytest.MonkeyPatch) -> None:
    """On hardware the next packet could overwrite bytes that the NoC has not read."""
    early = property(lambda channel: channel.open[0].left_ps if channel.open else None)
    patch.setattr(ReceiverChannel, "completes_ps", early)


def test_a_credit_given_twice_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    credit_given_twice(monkeypatch)
    error = run_ring(3, 1, 20, BUBBLE).document["error"]
    assert error["kind"] == "InvariantViolation"
    assert "were reported as completed" in error["message"]
    assert "were reported as completed" in error["message"]


def test_a_multicast_that_is_not_written_on_its_way_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    passed(run_ring(4, 1, 20, DATELINE, reach=2))
    forwarded_without_a_local_write(monkeypatch)
    error = run_ring(4, 1, 20, DATELINE, reach=2).document["error"]
    assert error["kind"] == "Deadlock"
    assert "kernel collect on" in error["message"]


def test_a_completion_before_the_write_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    completed_before_the_write_has_left(monkeypatch)
    error = run_ring(3, 1, 20, BUBBLE).document["error"]
    assert error["kind"] == "InvariantViolation"
    assert " is reported free, but 1 NoC writes of its packet have not arrived" in error["message"]


# --- credits ----------------------------------------------------------------------------------------------------


def test_a_lost_credit_is_named_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last completion of a chip that was asked for one says nothing."""
    send, sent = Router.send_credits, []

    def lose_one(self: Router, vc: int, completed: Any, acked: Any, at_ps: int) -> None:
        sent.append(completed)
        if len(sent) == 5:
            return
        send(self, vc, completed, acked, at_ps)

    monkeypatch.setattr(Router, "send_credits", lose_one)
    done = run_ring(3, 1, 6, DATELINE)
    assert done.document["status"] == "ok", done.document["error"]
    lines = left(done)
    assert any("were completed" in line for line in lines)
    assert any("of their slots were reported free" in line for line in lines)
    assert all(any(line in notice for notice in done.outcome.notices) for line in lines), "and the user is told"


def test_looks_that_find_nothing_cost_no_event(monkeypatch: pytest.MonkeyPatch) -> None:
    """Packets that come 1 us or 1 ms after one another: 50,000 looks of each router more."""
    events = []
    for pause_ns in (20_000, 1_000_000):
        done = passed(run_ring(3, 1, 5, BUBBLE, pause_ns=pause_ns))
        events.append(sum(member.session.engine.events for member in done.members))
    assert abs(events[1] - events[0]) < 10, "where the loops stand may differ"
