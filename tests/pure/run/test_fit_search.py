"""The search of values: what it finds, over which rows, and how it is judged on tests that it has not seen."""

import math
from collections.abc import Sequence
from typing import Any

import pytest
from fake_benches import FakeBench, LineCase, install, published
from tenstorrent.compare import Runner, Verdict
from tenstorrent.fit import (
    Few,
    Follower,
    Key,
    Model,
    Objective,
    Parameter,
    Values,
    by_architecture,
    can_move,
    cheap,
    document,
    fit,
    folds,
    hold_out,
    loss,
    rows_for,
    searched,
    section_of,
)
from tenstorrent.rows import request_of

from launcher.bench.machine import Machine
from launcher.bench.published import Published, default_files, read_published


def parameter(name: str, start: float, unit: str = "ns", source: str = "fitted") -> Parameter:
    return Parameter(Key("wormhole", tuple(name.split(".")), "0", unit, source), start)


A, B = parameter("ccl.a", 10.0), parameter("ccl.b", 10.0)
START = {A.name: 10.0, B.name: 10.0}
MODEL = Model((A, B), ())


class Hollow:
    """A cost that is least where each value is its target; ``asked``: what was asked for."""

    def __init__(self, targets: Values) -> None:
        self.asked: list[tuple[str, Values, float]] = []
        self._targets = targets

    def __call__(self, name: str, values: Values, limit: float) -> float:
        self.asked.append((name, values, limit))
        return sum(math.log(values[each] / target) ** 2 for each, target in self._targets.items())


@pytest.mark.parametrize(
    ("target", "unit", "value"),
    [
        *((each, "ns", pytest.approx(each, rel=0.05)) for each in (2.5, 3.7, 8.0, 10.0, 13.0, 22.0, 40.0)),
        (0.1, "ns", 2.5),
        (900.0, "ns", 40.0),
        (5.9, "packets", 6.0),
    ],
)
def test_it_finds_a_least_cost_within_the_bounds_and_whole_counts(target: float, unit: str, value: Any) -> None:
    moved = [parameter(A.name.partition(":")[2], 10.0, unit), B]
    assert searched(START, moved, Hollow({A.name: target, B.name: 11.0}), probes=8) == {
        A.name: value,
        B.name: pytest.approx(11.0, rel=0.05),
    }


def test_a_second_sweep_finds_what_hangs_together() -> None:
    """``a`` can be better when ``b`` is, which is looked at after it."""

    def cost(_name: str, values: dict[str, float], _limit: float) -> float:
        wanted = 4 * START[A.name] if values[B.name] > START[B.name] else START[A.name]
        return abs(values[A.name] - wanted) + 100 * abs(values[B.name] - 2 * START[B.name])

    once, twice = (searched(START, [A, B], cost, probes=0, sweeps=sweeps) for sweeps in (1, 2))
    assert once[A.name] == START[A.name]
    assert twice[A.name] == 4 * START[A.name]
    assert once[B.name] == twice[B.name] == 2 * START[B.name]


def test_a_value_without_effect_stays() -> None:
    assert searched(START, [A, B], lambda name, values, limit: 1.0, probes=4) == START


def test_a_value_that_is_right_takes_few_evaluations() -> None:
    hollow = Hollow({A.name: 10.0})
    searched(START, [A], hollow, probes=3)
    assert [values[A.name] for _, values, _ in hollow.asked[:4]] == [10.0, 5.0, 20.0, 10.0]
    assert len(hollow.asked) == 4 + 3


def test_a_try_is_told_what_it_has_to_be_below() -> None:
    hollow = Hollow({A.name: 20.0})
    searched(START, [A], hollow, probes=0)
    begin = math.log(2) ** 2
    assert [limit for _, _, limit in hollow.asked[:4]] == [math.inf, begin, begin, 0.0]


# --- what values cost ---------------------------------------------------------------------------------------


def time_ns(case: LineCase, nbytes: int, machine: Machine) -> float:
    """``a`` for each byte, and ``b`` for each link; on other chips it fails."""
    settings = dict(setting.removeprefix("system.chip_params.ccl.").split("=") for setting in machine.settings)
    return float(settings["a"]) * nbytes + float(settings["b"]) * case.links


def rows(tests: Sequence[str] = ("one",), a: float = 15.0, b: float = 3.0) -> list[Published]:
    """Rows that were made with these values."""
    return [
        published(id=f"{test}-{nbytes}", test=test, nbytes=nbytes, value=a * nbytes + b)
        for test in tests
        for nbytes in (16, 1, 4)
    ]


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> FakeBench:
    bench = FakeBench(time_ns)
    install(monkeypatch, bench)
    return bench


def test_it_finds_the_value_that_rows_were_made_with(bench: FakeBench) -> None:
    model = Model((A,), (Follower(B.key, A.name, 0.2),))
    found = fit(model, model.neutral, rows(a=15.0, b=3.0), Runner(1), probes=8)
    assert found.values == {A.name: pytest.approx(15, rel=0.03)}
    assert found.rows == {A.name: ["one-16", "one-1", "one-4"]}


def test_it_tells_what_it_has_cost(bench: FakeBench) -> None:
    runner = Runner(1)
    found = fit(MODEL, START, rows(), runner, probes=2)
    assert found.runs == len(bench.ran) == runner.runs
    assert found.evaluations < found.runs
    assert fit(MODEL, START, rows(), runner, probes=2)._replace(runs=found.runs) == found
    assert len(bench.ran) == found.runs


def test_a_follower_is_simulated_with_its_parameters_value(bench: FakeBench) -> None:
    model = Model((A,), (Follower(B.key, A.name, 0.5),))
    assert Objective(model, rows(a=8.0, b=4.0), Runner(1)).cost(A.name, {A.name: 8.0}, math.inf) == 0


def test_what_values_cost_does_not_depend_on_the_try_before(bench: FakeBench) -> None:
    """The runs change their order, and the sum of their losses must not."""
    some = [published(id=str(nbytes), test="one", nbytes=nbytes, value=13.0 * nbytes) for nbytes in range(1, 14)]
    objective, costs = Objective(MODEL, some, Runner(1)), set[float]()
    for before in (3.0, 11.0, 13.5, 20.0, 40.0):
        objective.cost(A.name, {A.name: before, B.name: before**2}, math.inf)
        costs.add(objective.cost(A.name, {A.name: 15.7, B.name: 9.1}, math.inf))
    assert len(costs) == 1


def test_a_bad_try_ends_early_and_begins_with_the_worst_run(bench: FakeBench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tenstorrent.fit.BATCH", 1)
    objective = Objective(MODEL, rows(), Runner(1))
    before = objective.cost(A.name, {A.name: 15.0, B.name: 9.0}, math.inf)
    del bench.ran[:]
    assert objective.cost(A.name, {A.name: 15.0, B.name: 12.0}, before) == math.inf
    assert [case.sizes for case, _, _ in bench.ran] == [(1,)]


@pytest.mark.parametrize(("simulated", "times"), [(100 * math.e**0.01, 1), (None, 0), (-5.0, 0)])
def test_small_errors_count_as_squares_and_failures_as_ten_times_too_much(simulated: float | None, times: int) -> None:
    found = loss(Verdict(published(), simulated))
    assert found == pytest.approx(0.01**2 if times else loss(Verdict(published(), 1000.0)), rel=0.01)


def test_a_row_that_the_model_cannot_meet_pulls_less_than_its_square() -> None:
    one, two = (loss(Verdict(published(), 100 * math.e**log)) for log in (1.0, 2.0))
    assert 2 * one <= two < 2.5 * one


def test_rows_with_a_narrow_range_count_four_times() -> None:
    wide, tight = (loss(Verdict(published(tolerance=text), 120.0)) for text in ("10%", "~5%"))
    assert tight == pytest.approx(4 * wide)


# --- rows ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("few", "chosen"),
    [
        (None, [64, 1, 2, 4, 8, 16, 32]),
        (Few(1, 2), [1]),
        (Few(2, 2), [1, 8]),
        (Few(3, 2), [1, 2, 8]),
        (Few(6, 1), [1, 2, 4, 8, 16, 64]),
        (Few(9, 1), [1, 2, 4, 8, 16, 32, 64]),
        (Few(9, 7), [1, 2]),
    ],
)
def test_few_cheap_cases_are_spread_over_bytes(bench: FakeBench, few: Few | None, chosen: list[int]) -> None:
    every = [published(id=f"{nbytes:03}", nbytes=nbytes) for nbytes in (64, 1, 2, 4, 8, 16, 32)]
    assert [row.nbytes for row in cheap(every, few)] == chosen


def test_no_published_value_decides_which_rows_are_looked_at(bench: FakeBench) -> None:
    every = [published(id=f"{nbytes:03}", nbytes=nbytes) for nbytes in (64, 1, 2, 4, 8)]
    other = [row._replace(value=1e6 / (row.nbytes or 1)) for row in every]
    assert [row.id for row in cheap(every, Few(2, 1))] == [row.id for row in cheap(other, Few(2, 1))]


def test_all_rows_of_a_case_are_taken(bench: FakeBench) -> None:
    every = [published(id=f"{nbytes}-{each}", nbytes=nbytes) for nbytes in (1, 2) for each in "ab"]
    assert [row.id for row in cheap(every, Few(1, 1))] == ["1-a", "1-b"]


RAW = published(family="seed_ubench", test="ring_ping_no_edm", hops=8, statistic="per_hop")
LINE_RATE = published(
    family="eth_link_bandwidth_no_edm",
    test="test_erisc_bw_uni_dir",
    nbytes=4096,
    metric="GB/s",
    statistic="per_direction",
)
EARLY = published(
    family="fabric_1d_latency",
    test="test_1D_line_fabric_latency_on_uncongested_fabric",
    devices="4",
    statistic="mean_round_trip",
)
LATE = published(
    family="fabric_latency_summary",
    test="LatencyLinearUnicast",
    devices="4",
    statistic="net_avg_round_trip_1_hop_each_way",
    message="noc_unicast_write",
)
CALL = published(
    family="ccl_report_wormhole_b0",
    test="all_gather",
    topology="line",
    devices="2",
    nbytes=6144,
    total_bytes=16384,
    metric="us",
    statistic="kernel_time",
)
CALLS = CALL._replace(statistic="kernel_time_back_to_back")
ADDS = CALL._replace(test="all_reduce")
LONG = CALL._replace(total_bytes=2**20)
NOBODYS = published(family="seed_ubench", test="strange")
OWN_ROUND = parameter("fabric.revisions.2025-03.costs.round_ns", 60.0)
OWN_LOOK = Follower(parameter("fabric.revisions.2025-03.costs.look_ns", 0.0).key, "wormhole:fabric.costs.look_ns", 1.0)


@pytest.mark.parametrize(
    ("key", "movable"),
    [
        ("risc.noc_command_ns", [RAW, LINE_RATE]),
        ("fabric.copy_bytes", [EARLY, LATE]),
        ("fabric.costs.look_ns", [EARLY, LATE]),
        ("fabric.costs.round_ns", [LATE]),
        ("fabric.revisions.2025-03.costs.round_ns", [EARLY]),
        ("fabric.mux_visit_ns", []),
        ("ccl.page_ns", [CALL, CALLS, ADDS, LONG]),
        ("ccl.skew_ns", [CALL, ADDS, LONG]),
        ("ccl.add_GBps", [ADDS]),
        ("ccl.copier_bytes", [LONG]),
    ],
)
def test_the_rows_that_a_key_can_move(key: str, movable: list[Published]) -> None:
    model = Model((OWN_ROUND,), (OWN_LOOK,))
    every = [RAW, LINE_RATE, EARLY, LATE, CALL, CALLS, ADDS, LONG, NOBODYS]
    own = parameter(key, 2.0**20)
    section = section_of(own)
    assert [row for row in every if can_move(own, model, row, section)] == movable
    assert not any(can_move(own, model, row._replace(architecture="blackhole"), section) for row in every)


def test_what_the_line_rate_alone_sets_is_not_looked_at() -> None:
    found = rows_for(parameter("risc.noc_command_ns", 1.0), Model((), ()), [RAW, LINE_RATE])
    assert found == [RAW]


def test_without_raw_links_their_keys_are_searched_over_the_fabric() -> None:
    own = parameter("risc.noc_command_ns", 1.0)
    assert rows_for(own, Model((), ()), [LATE, CALL]) == [LATE]
    assert rows_for(own, Model((), ()), [RAW, LATE, CALL]) == [RAW]


# --- folds --------------------------------------------------------------------------------------------------

PROJECT = [row for path in default_files() for row in read_published(path) if request_of(row).case]


@pytest.mark.parametrize("count", [2, 3, 5])
def test_all_rows_of_a_test_are_in_one_fold(count: int) -> None:
    found = folds(PROJECT, count)
    where = [{(row.family, row.test) for row in fold} for fold in found]
    assert sum(map(len, found)) == len(PROJECT)
    assert sum(map(len, where)) == len(set().union(*where))
    for family in {row.family for row in PROJECT}:
        shares = [sum(each[0] == family for each in fold) for fold in where]
        assert max(shares) - min(shares) <= 1, family


def test_folds_depend_on_names_alone() -> None:
    other = [row._replace(value=1.0) for row in PROJECT[::-1]]
    assert [{row.id for row in fold} for fold in folds(other, 3)] == [
        {row.id for row in fold} for fold in folds(PROJECT, 3)
    ]


def test_each_test_is_judged_with_values_that_were_fitted_to_the_others(bench: FakeBench) -> None:
    """Of two tests that contradict each other, each is judged with what the other says."""
    every = [*rows(["ten"], a=10.0, b=10.0), *rows(["two"], a=20.0, b=20.0)]
    every.append(published(id="in", test="ten", value=1e9, kind="input"))
    found = list(hold_out(MODEL, every, 2, Runner(1), probes=2))
    judged = {each.row.id: each.simulated for fold in found for each in fold.verdicts}
    found_by_test = {"ten": 20.0, "two": 10.0}
    assert judged == {f"{test}-{n}": value * (n + 1) for test, value in found_by_test.items() for n in (1, 4, 16)}
    told = document(found)
    assert told["summary"]["all"]["near"] == told["summary"]["wormhole_b0"]["near"] == 0
    assert [fold["tests"] for fold in told["folds"]] == [fold.tests for fold in found]


def test_the_report_is_by_architecture_and_in_all() -> None:
    names = ("wormhole_b0", "blackhole", "blackhole")
    verdicts = [Verdict(published(architecture=name), 1.0) for name in names]
    found = {name: len(own) for name, own in by_architecture(verdicts).items()}
    assert found == {"blackhole": 2, "wormhole_b0": 1, "all": 3}
