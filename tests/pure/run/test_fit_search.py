"""The search of values: what it finds, over which rows, and how it is judged on tests that it has not seen."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from fake_benches import FakeBench, LineCase, install, published
from tenstorrent.compare import Runner, Verdict
from tenstorrent.fit import (
    FOLLOWERS,
    STARTS,
    Fit,
    by_architecture,
    can_move,
    cheap,
    document,
    folds,
    hold_out,
    loss,
    rows_for,
)
from tenstorrent.rows import request_of

from launcher.bench.machine import Machine
from launcher.bench.published import Published, default_files, read_published

A, B, COUNT = "wormhole:ccl.a", "wormhole:ccl.b", "wormhole:ccl.a_packets"


@pytest.fixture(autouse=True)
def starts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parameters of no chip."""
    for name in (A, B, COUNT):
        monkeypatch.setitem(STARTS, name, 10.0)


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


class Hollow(Fit):
    """A fit whose costs are a function of its values; ``asked``: what was asked for."""

    def __init__(self, names: Sequence[str], cost_of: Callable[[dict[str, float]], float]) -> None:
        super().__init__(names, rows(), Runner(1))
        self.asked: list[tuple[str, float, float]] = []
        self._cost_of = cost_of

    def cost(self, name: str, value: float, limit: float = math.inf) -> float:
        self.asked.append((name, value, limit))
        return self._cost_of({**self.values, name: value})


def apart(**targets: float) -> Callable[[dict[str, float]], float]:
    """Least where each value is its target."""
    return lambda values: sum(math.log(values[f"wormhole:ccl.{key}"] / own) ** 2 for key, own in targets.items())


@pytest.mark.parametrize(
    ("target", "key", "value"),
    [
        *((each, "a", pytest.approx(each, rel=0.05)) for each in (2.5, 3.7, 8.0, 10.0, 13.0, 22.0, 40.0)),
        (0.1, "a", 2.5),
        (900.0, "a", 40.0),
        (5.9, "a_packets", 6.0),
    ],
)
def test_it_finds_a_least_cost_within_the_bounds_and_whole_counts(
    bench: FakeBench, target: float, key: str, value: Any
) -> None:
    name = f"wormhole:ccl.{key}"
    found = Hollow([name, B], apart(**{key: target, "b": 11.0})).run(probes=8)
    assert found.values == {name: value, B: pytest.approx(11.0, rel=0.05)}


def test_a_second_sweep_finds_what_hangs_together(bench: FakeBench) -> None:
    """``a`` can be better when ``b`` is, which is looked at after it."""

    def cost(values: dict[str, float]) -> float:
        wanted = 40.0 if values[B] > 10.0 else 10.0
        return abs(values[A] - wanted) + 100 * abs(values[B] - 20.0)

    once, twice = (Hollow([A, B], cost).run(0, sweeps).values for sweeps in (1, 2))
    assert once == {A: 10.0, B: 20.0}
    assert twice == {A: 40.0, B: 20.0}


def test_a_value_without_effect_stays(bench: FakeBench) -> None:
    assert Hollow([A, B], lambda values: 1.0).run(probes=4).values == {A: 10.0, B: 10.0}


def test_a_value_that_is_right_takes_few_evaluations(bench: FakeBench) -> None:
    hollow = Hollow([A], apart(a=10.0))
    hollow.run(probes=3)
    assert [value for _, value, _ in hollow.asked[:4]] == [10.0, 5.0, 20.0, 10.0]
    assert len(hollow.asked) == 4 + 3


def test_a_try_is_told_what_it_has_to_be_below(bench: FakeBench) -> None:
    hollow = Hollow([A], apart(a=20.0))
    hollow.run(probes=0)
    begin = math.log(2) ** 2
    assert [limit for _, _, limit in hollow.asked[:4]] == [math.inf, begin, begin, 0.0]


# --- what values cost ---------------------------------------------------------------------------------------


def test_it_finds_the_value_that_rows_were_made_with(bench: FakeBench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another key is simulated with the value of the parameter that it follows."""
    monkeypatch.setitem(FOLLOWERS, B, A)
    found = Fit([A], rows(a=15.0, b=15.0), Runner(1)).run(probes=8)
    assert found.values == {A: pytest.approx(15, rel=0.03)}
    assert found.document()["rows"] == {A: ["one-16", "one-1", "one-4"]}
    assert found.cost(A, 15.0) == 0


def test_it_tells_what_it_has_cost(bench: FakeBench) -> None:
    runner = Runner(1)
    found = Fit([A, B], rows(), runner).run(probes=2)
    assert found.runs == len(bench.ran) == runner.runs
    assert found.evaluations < found.runs
    assert Fit([A, B], rows(), runner).run(probes=2).document() == {**found.document(), "runs": 0}
    assert len(bench.ran) == found.runs


def test_what_values_cost_does_not_depend_on_the_try_before(bench: FakeBench) -> None:
    """The runs change their order, and the sum of their losses must not."""
    some = [published(id=str(size), test="one", nbytes=size, value=13.0 * size + size % 5) for size in range(1, 30)]
    found, costs = Fit([A, B], some, Runner(1)), set[float]()
    for before in (3.0, 11.0, 12.5, 13.5, 14.3, 20.0, 40.0):
        found.values[B] = before**2
        found.cost(A, before)
        found.values[B] = 9.1
        costs.add(found.cost(A, 15.7))
    assert len(costs) == 1


def test_a_bad_try_ends_early_and_begins_with_the_worst_run(bench: FakeBench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tenstorrent.fit.BATCH", 1)
    found = Fit([A, B], rows(), Runner(1))
    found.values[B] = 9.0
    before = found.cost(A, 15.0)
    del bench.ran[:]
    found.values[B] = 12.0
    assert found.cost(A, 15.0, before) == math.inf
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
        ((1, 2), [1]),
        ((2, 2), [1, 8]),
        ((3, 2), [1, 2, 8]),
        ((6, 1), [1, 2, 4, 8, 16, 64]),
        ((9, 1), [1, 2, 4, 8, 16, 32, 64]),
        ((9, 7), [1, 2]),
    ],
)
def test_few_cheap_cases_are_spread_over_bytes(
    bench: FakeBench, few: tuple[int, int] | None, chosen: list[int]
) -> None:
    every = [published(id=f"{nbytes:03}", nbytes=nbytes) for nbytes in (64, 1, 2, 4, 8, 16, 32)]
    assert [row.nbytes for row in cheap(every, few)] == chosen


def test_no_published_value_decides_which_rows_are_looked_at(bench: FakeBench) -> None:
    every = [published(id=f"{nbytes:03}", nbytes=nbytes) for nbytes in (64, 1, 2, 4, 8)]
    other = [row._replace(value=1e6 / (row.nbytes or 1)) for row in every]
    assert [row.id for row in cheap(every, (2, 1))] == [row.id for row in cheap(other, (2, 1))]


def test_all_rows_of_a_case_are_taken(bench: FakeBench) -> None:
    every = [published(id=f"{nbytes}-{each}", nbytes=nbytes) for nbytes in (1, 2) for each in "ab"]
    assert [row.id for row in cheap(every, (1, 1))] == ["1-a", "1-b"]


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


@pytest.mark.parametrize(
    ("name", "movable"),
    [
        ("wormhole:risc.noc_command_ns", [RAW]),
        ("wormhole:fabric.copy_bytes", [EARLY, LATE]),
        ("wormhole:fabric.costs.look_ns", [EARLY, LATE]),
        ("wormhole:fabric.costs.round_ns", [LATE]),
        ("wormhole:fabric.revisions.2025-03.costs.round_ns", [EARLY]),
        ("wormhole:fabric.mux_visit_ns", []),
        ("wormhole:ccl.page_ns", [CALL, CALLS, ADDS, LONG]),
        ("wormhole:ccl.skew_ns", [CALL, ADDS, LONG]),
        ("wormhole:ccl.add_GBps", [ADDS]),
        ("wormhole:ccl.copier_bytes", [LONG]),
    ],
)
def test_the_rows_that_a_key_can_move(name: str, movable: list[Published], monkeypatch: pytest.MonkeyPatch) -> None:
    """``LINE_RATE`` moves with the line rate alone; of a revision's own costs, one follows the fabric's."""
    own = "wormhole:fabric.revisions.2025-03.costs"
    monkeypatch.setitem(FOLLOWERS, f"{own}.look_ns", "wormhole:fabric.costs.look_ns")
    monkeypatch.setitem(STARTS, name, 2.0**20)
    monkeypatch.setattr("tenstorrent.fit.FEW", {})
    every = [RAW, LINE_RATE, EARLY, LATE, CALL, CALLS, ADDS, LONG, NOBODYS]
    assert set(rows_for(name, every)) == set(movable)
    others = [row._replace(architecture="blackhole") for row in every]
    assert not any(can_move(name, row, request_of(row)) for row in others)


def test_without_raw_links_their_keys_are_searched_over_the_fabric() -> None:
    name = "wormhole:risc.noc_command_ns"
    assert rows_for(name, [LATE, CALL]) == [LATE]
    assert rows_for(name, [RAW, LATE, CALL]) == [RAW]


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
    found = list(hold_out([A, B], every, 2, Runner(1), probes=2))
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
