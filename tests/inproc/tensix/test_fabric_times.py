"""The time of one packet over an idle fabric, by hand from the parameters: the visits of routers, wires and NoCs."""

from collections.abc import Sequence
from typing import Any

import pytest
from fabric_runs import Flow, passed, run_flows
from runs import Run

from sipsim.chips.tensix.noc import NOCS, Core

LOOK_PS = 1
COSTS = {"round_ns": 0, "look_ns": LOOK_PS / 1000, "send_ns": 100, "sent_ns": 0, "credit_ns": 0,
         "forward_ns": 10, "further_ns": 7, "completion_ns": 0, "ack_ns": 50}  # fmt: skip
BASE, SEMAPHORE, HEADER, HANDSHAKE_BYTES = 0x40000, 0x20000, 48, 96


def run_one(hops: int, nbytes: int, number: int = 1, behind: Sequence[Flow] = (), **how: Any) -> Run:
    """A packet from chip 0 eastwards, and packets of other flows behind it. All costs but those of ``COSTS``, of wires
    and of NoCs are off.
    """
    chip = "system.chip_params"
    given: dict[str, object] = {f"{chip}.fabric.costs.{name}": value for name, value in COSTS.items()}
    given |= {f"{chip}.ethernet.copy_GBps": "null", f"{chip}.risc.noc_command_ns": 0}
    flow = {"at": 0, "way": "E", "start": hops, "number": number, "nbytes": nbytes, **how}
    words = [word for name, value in given.items() for word in ("--set", f"{name}={value}")]
    return passed(run_flows(4, [flow, *behind], *words, fabric={"topology": "line"}, keep_oplog=True))


def told(done: Run, rank: int, kind: str, address: int) -> tuple[int, Core]:
    """When what goes to an address of a chip's last worker is there, and which core has sent it."""
    for name, _, end_ps, x, y, _core, to, *_ in done.members[rank].chip.oplog.records:
        if name == kind and to == address:
            return end_ps, Core(x, y)
    raise AssertionError(f"nothing came to 0x{address:x} of chip {rank}")


class Hand:
    """Times of the parts of a way, as their parameters say."""

    def __init__(self, done: Run) -> None:
        self._done = done
        self._plan = done.prepared.plan

    def core(self, rank: int, far: int) -> Core:
        return Core(*self._plan.params.ethernet.cores[self._plan.links_to(rank, far)[0]])

    def wire_ps(self, payload_bytes: int) -> int:
        link = self._plan.system.link_kinds[0]
        return int(link.drain_ps(HEADER + -(-payload_bytes // 16) * 16) + link.latency_ps)

    def noc_ps(self, src: Core, dst: Core, nbytes: int) -> int:
        graph = self._plan.graph
        noc = min(NOCS, key=lambda each: graph.hops(each, src, dst))
        return int(graph.data_route(noc, src, dst).latency_ps(nbytes))

    def begin_ps(self) -> int:
        """When the header of the packet is in the first router's slot, and the far end has said that it is there."""
        found = []
        slot = ("noc.write", str(self.core(0, 1)), HEADER)
        for name, _, end_ps, _x, _y, place, nbytes, size, *_ in self._done.members[0].chip.oplog.records:
            if (name, place, size) == slot or (name, nbytes) == ("eth.arrive", HANDSHAKE_BYTES):
                found.append(int(end_ps))
        return max(found)


@pytest.mark.parametrize("nbytes", [16, 100, 4096])
@pytest.mark.parametrize("hops", [1, 2, 3])
def test_one_packet_takes_what_its_parts_take(hops: int, nbytes: int) -> None:
    """Sender visit, wire, receiver visit and NoC of each chip.
    A visit begins within a round of looks, 3 ps, of the time from which on there is work.
    """
    done = run_one(hops, nbytes)
    hand, target = Hand(done), done.members[0].chip.metal.workers[-1]
    expected_ps = hand.begin_ps()
    for chip in range(hops):
        expected_ps += 100_000 + hand.wire_ps(nbytes) + 10_000
        arrived = hand.core(chip + 1, chip)
        onward, size = (target, nbytes) if chip + 1 == hops else (hand.core(chip + 1, chip + 2), HEADER + nbytes)
        expected_ps += hand.noc_ps(arrived, onward, size)
    end_ps, _ = told(done, hops, "noc.write", BASE)
    visits = 2 * hops
    assert visits * LOOK_PS <= end_ps - expected_ps <= visits * 4 * LOOK_PS


def test_a_multicast_forwards_first_and_then_writes() -> None:
    """A command later, ``further_ns``, on a chip that it passes than where it ends."""
    far_ps = {}
    for number in (1, 2):
        done = run_one(1, 64, number)
        far_ps[number] = told(done, 1, "noc.write", BASE)[0] - Hand(done).begin_ps()
    assert abs(far_ps[2] - far_ps[1] - 7_000) <= 4 * LOOK_PS


@pytest.mark.parametrize("command", ["fused", "fused_no_flush"])
def test_an_increment_goes_out_a_command_later_than_its_write(command: str) -> None:
    done = run_one(1, 64, command=command)
    hand, target = Hand(done), done.members[0].chip.metal.workers[-1]
    written_ps, router = told(done, 1, "noc.write", BASE)
    added_ps, _ = told(done, 1, "noc.increment", SEMAPHORE)
    assert added_ps == written_ps - hand.noc_ps(router, target, 64) + 7_000 + hand.noc_ps(router, target, 4)


@pytest.mark.parametrize("number", [1, 2])
def test_a_flushed_increment_goes_out_when_writes_before_it_are_acknowledged(number: int) -> None:
    """One that is forwarded, too; its visit begins before."""
    flush = {"at": 0, "way": "E", "start": 1, "number": number, "command": "increment_flush"}
    done = run_one(1, 4096, behind=[flush])
    hand, target, graph = Hand(done), done.members[0].chip.metal.workers[-1], done.prepared.plan.graph
    written_ps, router = told(done, 1, "noc.write", BASE)
    noc = min(NOCS, key=lambda each: graph.hops(each, router, target))
    acked_ps = written_ps + graph.between(noc, target, router).latency_ps(1)
    added_ps, _ = told(done, 1, "noc.increment", SEMAPHORE + 16)
    assert added_ps == acked_ps + hand.noc_ps(router, target, 4)
