"""Runs with finite input buffers: the same data as without, the same times by any mail, a path that adds up."""

from typing import Any

import pytest
from explained import check_path, explained
from random_flags import drawn
from runs import run as run_once
from shuffled_mail import ShuffledInprocMail

from launcher.api import run

SEEDS = [*range(12), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(12, 200))]
SMALL = ("--sips", 4, "--topology", "torus_2d", "--bytes", "32K", "--set", "sip.cube_mesh={w: 2, h: 2}")


def buffered(seed: int) -> dict[str, Any]:
    flags = drawn(seed)
    return {**flags, "set": [*flags["set"], f"router.buffer_packets={(1, 2, 5)[seed % 3]}"]}


@pytest.mark.parametrize("seed", SEEDS)
def test_data_are_the_same_and_the_path_adds_up(seed: int) -> None:
    """With every check on, at any depth. Tensors do not depend on when messages come: each queue keeps their order."""
    check_path(*explained(**buffered(seed), check_invariants=True))
    done, before = (run(**flags, check_invariants=True) for flags in (buffered(seed), drawn(seed)))
    assert done.error is None, done.error
    assert [row["wrong"] for row in done.document["runs"]] == [0 for _ in before.document["runs"]]
    tensors = [[rank["tensor_sha256"] for rank in each.document["ranks"]] for each in (done, before)]
    assert tensors[0] == tensors[1]


@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize("mode", ["fast_path", "fabric", "piggyback"])
def test_times_do_not_depend_on_the_mail(depth: int, mode: str) -> None:
    flags = (*SMALL, "--set", f"router.buffer_packets={depth}", "--set", f"defaults.credit_return_mode={mode}")
    made = [run_once(*flags, office=None if seed < 0 else ShuffledInprocMail(seed)) for seed in range(-1, 4)]
    assert all(each.results() == made[0].results() for each in made)


def test_shallow_buffers_cost_time_and_deep_ones_none() -> None:
    """A packet of 256 B takes 4 ns on an edge; its credit comes back in 5.0 to 6.1 ns more at most: two wires and the
    end node's overhead. So one packet does not keep an edge busy, and three do.
    """
    times = {depth: _time_ns(f"router.buffer_packets={depth}") for depth in (1, 3, 64)}
    assert times[1] > 1.05 * times[64]
    assert times[3] == pytest.approx(times[64], rel=0.01)


def _time_ns(*settings: str) -> float:
    flags = [word for each in settings for word in ("--set", each)]
    time_ns: float = run_once("--sips", 2, "--bytes", "32K", *flags).document["runs"][-1]["time_ns"]
    return time_ns
