"""Runs with finite input buffers: the same data as without, the same times by any mail, a path that adds up."""

import json
from itertools import product
from typing import Any

import pytest
from explained import check_path, explained
from program_runs import Settings, check, run_program
from random_flags import drawn
from random_programs import Program, random_program
from runs import run as run_once
from sweeps import batches, crossed, some

from launcher.api import run
from launcher.probe.command import parse_probe, probe
from sipsim.fabric.flows import BUSY, UNSHOWN

SEEDS = batches(200, 1, ordinary=2)
SMALL = ("--sips", 4, "--topology", "torus_2d", "--bytes", "32K", "--set", "sip.cube_mesh={w: 2, h: 2}")
MODES = list(product(("tcm", "hbm", "sram"), ("sleep", "poll"), ("fast_path", "fabric", "piggyback")))


def buffered(seed: int) -> dict[str, Any]:
    flags = drawn(seed)
    depths = f"router.buffer_packets={(1, 2, 5)[seed % 3]}", f"io_port.buffer_packets={('null', 1, 6, 40)[seed % 4]}"
    return {**flags, "set": [*flags["set"], *depths]}


@pytest.mark.ideal
@pytest.mark.parametrize("seed", SEEDS)
def test_data_are_the_same_and_the_path_adds_up(seed: int) -> None:
    """With every check on, at any depth. Tensors do not depend on when messages come: each queue keeps their order."""
    done, told = explained(**buffered(seed), check_invariants=True, verify_data=True)
    check_path(done, told)
    before = run(**drawn(seed)).document
    assert [row["wrong"] for row in done["runs"]] == [0 for _ in before["runs"]]
    tensors = [[rank["tensor_sha256"] for rank in each["ranks"]] for each in (done, before)]
    assert tensors[0] == tensors[1]


@pytest.mark.parametrize(
    ("depths", "mode"), crossed([(1, "null"), (2, 1), (2, 20)], ["fast_path", "fabric", "piggyback"])
)
def test_times_do_not_depend_on_the_mail(depths: tuple[int, Any], mode: str) -> None:
    settings = f"router.buffer_packets={depths[0]}", f"io_port.buffer_packets={depths[1]}"
    flags = [*SMALL, *_set(*settings, f"defaults.credit_return_mode={mode}")]
    assert run_once(*flags, mail_seed=0).results() == run_once(*flags).results()


class Finite(Settings):
    """Random systems whose buffers hold a few packets, in lines and rings of SIPs, with through traffic."""

    def chosen(self, program: Program, seed: int) -> dict[str, Any]:
        depths = {"router.buffer_packets": 1 + seed % 2, "io_port.buffer_packets": (None, 1, 3, 20)[seed % 4]}
        return {**super().chosen(program, seed), **depths}


@pytest.mark.parametrize("mode", some(MODES, *(MODES[at] for at in (0, 4, 8, 9, 13, 17))), ids="-".join)
def test_random_kernels_end_or_wait_as_their_queues_do(mode: tuple[str, str, str]) -> None:
    """What the buffers hold back comes at last: a program blocks where the model of bounded queues says, only there."""
    first = 1000 * MODES.index(mode) + 700
    for seed in range(first, first + 3):
        program = random_program(seed)
        check(program, run_program(program, Finite(2 + seed % 4, *mode), seed, mail_seed=seed))


LINE = {
    "sip.cube_mesh": {"w": 2, "h": 2},
    "system.sips": {"count": 3, "topology": "mesh_2d_no_wrap", "shape": [3, 1], "links": {"1.W": "ethernet_100g"}},
    "router.buffer_packets": 4,
    "io_port.buffer_packets": 64,
}
"""SIP 0 and 1 are joined by Ethernet, SIP 1 and 2 by UCIe."""


@pytest.mark.parametrize("nbytes", [2, 256, 258, 4096])
@pytest.mark.parametrize(("src", "dst"), [(0, 1), (1, 0), (1, 2), (2, 1), (0, 2), (2, 0), (0, 0)])
def test_alone_a_message_takes_the_sum_of_its_parts(src: int, dst: int, nbytes: int) -> None:
    """From a corner of a SIP to that of another, over a slow link and a fast one, and through a SIP."""
    words = ["--from", f"{src}.0.0", "--to", f"{dst}.3.5", "--bytes", str(nbytes)]
    words += _set(*(f"{key}={json.dumps(value)}" for key, value in LINE.items()))
    pair = probe(parse_probe(words))["pair"]
    assert pair["simulated_ps"] == pair["sum_ps"]


@pytest.mark.ideal
def test_shallow_buffers_cost_time_and_deep_ones_none() -> None:
    """A packet of 256 B takes 4 ns on an edge, and its credit comes back two wires and an overhead later, 2.1 ns at
    most. So one packet does not keep an edge busy, and two do."""
    times = {depth: _time_ns(f"router.buffer_packets={depth}") for depth in (1, 2, 64)}
    assert times[1] > 1.05 * times[64]
    assert times[2] == pytest.approx(times[64], rel=0.01)


def test_a_link_waits_for_places_at_its_far_end() -> None:
    """Over Ethernet a round trip takes more than 1 us: with room for one message there one goes in each, with room for
    many it is as if there were no limit."""
    flags = "system.sips.link=ethernet_100g", "router.buffer_packets=4", "sip.cube_mesh={w: 2, h: 2}"
    times = {depth: _time_ns(*flags, f"io_port.buffer_packets={depth}") for depth in ("null", 1, 4096)}
    assert times["null"] <= times[4096] < 1.1 * times["null"]
    assert times[1] > 1.3 * times[4096]


def test_of_a_busy_link_flows_say_what_they_leave_out_and_packets_nothing() -> None:
    job = (
        "--sips",
        2,
        "--link",
        "ethernet_100g",
        "--collective",
        "all_reduce",
        "--algorithm",
        "ring",
        "--bytes",
        "256K",
    )
    said = {}
    for depth in ("null", 4):
        done = run_once(*job, *_set("sip.cube_mesh={w: 1, h: 1}", f"router.buffer_packets={depth}"))
        assert done.document["runs"][0]["busiest_link_utilisation"] > BUSY
        for verbose in (False, True):
            lines = done.table(verbose).splitlines()
            said[depth, verbose] = ["link 0.E>1.W" in line for line in lines if UNSHOWN in line]
    assert said == {("null", False): [True], ("null", True): [True], (4, False): [], (4, True): []}


def _set(*settings: str) -> list[str]:
    return [word for each in settings for word in ("--set", each)]


def _time_ns(*settings: str) -> float:
    time_ns: float = run_once("--sips", 2, "--bytes", "128K", *_set(*settings)).document["runs"][-1]["time_ns"]
    return time_ns
