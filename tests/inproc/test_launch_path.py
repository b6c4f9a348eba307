"""The path of a launch: host, IO_CPU, M_CPUs, PEs and back, with sums by hand; skew moves times and never data."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
from launch_flags import launch_flags, launch_settings
from runs import Run, run, script_file
from sweeps import batches

from launcher.api import run as run_program
from sipsim.chips.ahbm.control.launch import RoutedLaunch
from sipsim.records.explanation import Explanation

ONE_CUBE = ("--sips", 1, "--set", "sip.cube_mesh.w=1", "--set", "sip.cube_mesh.h=1", "--check-invariants")
MESH = ("--sips", 1, "--check-invariants")
SMALL = ("--set", "sip.cube_mesh.w=2", "--set", "sip.cube_mesh.h=2")
SCRIPT = """
def idle(tl):
    pass

def load(t_ptr, tl):
    tl.load(t_ptr, 64)

def worker(rank, world_size, torch):
    dist = torch.distributed
    dist.init_process_group()
    t = torch.ones((1, 64), dp=DPPolicy(num_cubes=1))
"""

HOST, TAKE = 500, 300
TO_CUBE = 5 + 0.1 + 1 + 0.05 + 7 + 64 / 16
"""IO_CPU, wire, router, wire, M_CPU; the drain into M_CPU is the slowest."""
TO_PE = 7 + 0.05 + 1 + 0.05 + 1 + 32 / 16
OF_PE = 1 + 0.05 + 1 + 0.05 + 7 + 16 / 16
OF_CUBE = 7 + 0.05 + 1 + 0.1 + 5 + 16 / 16
LOAD = 2 * (1 + 0.05 + 1 + 0.05 + 1) + 16 / 64 + 99 + 128 / 64
"""128 B from the HBM beside the PE's router: a command of 16 B, the read, the data."""
START = HOST + TAKE + TO_CUBE + 50 + TO_PE
"""Of one PE in one cube, which gets its message exactly at the bound of the fan-out."""
GATHER = OF_PE + 30 + OF_CUBE + 20 + HOST


def scripted(folder: Path, body: str, *flags: object, **changes: object) -> list[dict[str, Any]]:
    """The launches of a script on a machine with a launch path."""
    return done(folder, body, *flags, **changes).document["launches"]


def done(folder: Path, body: str, *flags: object, **changes: object) -> Run:
    lines = "".join(f"    {line}\n" for line in body.strip().splitlines())
    ran = run(*(flags or ONE_CUBE), *launch_flags(**changes), script_file(folder, SCRIPT + lines))
    assert ran.outcome.error is None, ran.outcome.error
    return ran


def times(launch: dict[str, Any]) -> Any:
    """Of the launch, of its first kernel's start and its last one's end, and of the end that the host sees."""
    names = ("start_ns", "kernels_start_ns", "kernels_end_ns", "end_ns")
    return pytest.approx([launch[name] for name in names], abs=1e-6)


class TestTimes:
    @pytest.mark.ideal
    def test_one_pe(self, tmp_path: Path) -> None:
        (launch,) = scripted(tmp_path, "torch.launch(load, t)")
        assert times(launch) == [0, START, START + LOAD, START + LOAD + GATHER]
        assert launch["late_by_ns"] == 0

    def test_two_pes_are_served_one_after_the_other(self, tmp_path: Path) -> None:
        """PE 1 is a router farther. Its answer leaves when the first one does, and shares the edge into M_CPU with it:
        16 B take 2 ns. It comes while M_CPU has the first one, for 30 ns."""
        (launch,) = scripted(tmp_path, "torch.launch(idle, pes=[0, 1])")
        farther = 1 + 0.25
        start = HOST + TAKE + TO_CUBE + 2 * 50 + (TO_PE + farther) + 32 / 16
        assert times(launch) == [0, start, start, start + OF_PE + 16 / 16 + 2 * 30 + OF_CUBE + 20 + HOST]

    @pytest.mark.ideal
    def test_a_whole_mesh(self, tmp_path: Path) -> None:
        """To cube 15: 23 routers with 16 pitches, 6 crossings. All start at once. IO_CPU has work from the first
        answer on, that of cube 0, until it has taken 16; all of these share the edge into it, of 32 GB/s."""
        (launch,) = scripted(tmp_path, "torch.launch(idle)", *MESH)
        crossings = 6 * (2 * 2 + 2 * 0.05 + 0.1)
        farthest = 5 + 0.1 + 23 + 16 * 0.25 + crossings + 0.05 + 7
        start = HOST + TAKE + farthest + 16 * 64 / 16 + 50 + TO_PE
        shared = 16 * 16 / 32 - 16 / 16
        assert times(launch) == [0, start, start, start + OF_PE + 30 + OF_CUBE + shared + 16 * 20 + HOST]
        assert (launch["kernels"], launch["late_by_ns"]) == (16, 0)

    @pytest.mark.ideal
    def test_a_margin_that_is_too_short_is_visible(self, tmp_path: Path) -> None:
        (launch,) = scripted(tmp_path, "torch.launch(load, t)", start_margin_ns=10)
        assert times(launch) == [0, START, START + LOAD, START + LOAD + GATHER]
        assert launch["target_start_ns"] == HOST + TAKE + 10
        assert launch["late_by_ns"] == pytest.approx(TO_CUBE + 50 + TO_PE - 10)

    @pytest.mark.ideal
    def test_a_margin_that_is_long_is_waited_for(self, tmp_path: Path) -> None:
        (launch,) = scripted(tmp_path, "torch.launch(load, t)", start_margin_ns=1000)
        start = HOST + TAKE + 1000
        assert times(launch) == [0, start, start + LOAD, start + LOAD + GATHER]

    def test_io_cpu_takes_one_launch_after_the_other(self, tmp_path: Path) -> None:
        """Two launches on different PEs: the second is taken 300 ns later. The first one's answer waits for that."""
        body = "works = [torch.launch(idle, pes=pe, async_op=True) for pe in (0, 1)]\nfor work in works: work.wait()"
        first, second = scripted(tmp_path, body)
        assert times(first) == [0, START, START, HOST + 2 * TAKE + 20 + HOST]
        farther = 1 + 0.25
        assert times(second) == [0, START + TAKE + farther, START + TAKE + farther, START + TAKE + GATHER + 2 * farther]

    def test_a_launch_on_the_same_pe_leaves_when_the_end_is_known(self, tmp_path: Path) -> None:
        first, second = scripted(tmp_path, "for _ in range(2): torch.launch(idle, async_op=True)")
        assert first["end_ns"] == second["start_ns"] == pytest.approx(START + GATHER)
        assert second["end_ns"] == pytest.approx(2 * (START + GATHER))


class TestEvents:
    @pytest.mark.ideal
    @pytest.mark.parametrize(
        ("body", "cubes", "pes"), [("cubes=3", 1, 1), ("pes=0", 16, 16), ("pes=range(8)", 16, 128)]
    )
    def test_they_grow_with_cubes_and_pes(self, tmp_path: Path, body: str, cubes: int, pes: int) -> None:
        """A message to a PE or cube and its answer: two transfers of one or two events each, the service time of a CPU
        twice, and four events of the inbox; besides, the processes of the launch and of its CPUs."""
        path = script_file(tmp_path, SCRIPT + f"    torch.launch(idle, {body})\n")
        free, routed = (run(*MESH, *flags, path).document["ranks"][0]["events"] for flags in ((), launch_flags()))
        assert 6 * (cubes + pes) <= routed - free <= 11 * (cubes + pes) + 16


MAP = """
from sipsim.chips.ahbm.control.fan_out import Broadcast, Sizes

control, told = torch._sip.control, []
engine, recorder = control.engine, control.recorder

def at_pe(place, span):
    now_ps = engine.now_ps
    told.append((place, now_ps))
    done = lambda: round_.answer(place, recorder.span("mmu", "map", now_ps, now_ps + 3000, span))
    engine.at(now_ps + 3000, done)

def gathered(span):
    told.append(engine.now_ps)

round_ = Broadcast(control, 'map', [(0, 1), (0, 0)], Sizes(256, 128, 16), at_pe, gathered, 0)
torch.launch(idle)
assert told == {}, told
"""


def test_a_round_carries_what_is_no_launch(tmp_path: Path) -> None:
    """Such as entries of page tables, of 128 B for each of two PEs, which take 3 ns for it. An answer that comes while
    M_CPU dispatches waits."""
    to_cube = TO_CUBE + (256 - 64) / 16
    first, second = to_cube + 50 + TO_PE + (128 - 32) / 16, to_cube + 2 * 50 + TO_PE + (128 - 32) / 16 + 1.25
    assert first + 3 + OF_PE < to_cube + 2 * 50
    last = second + 3 + OF_PE + 1.25 + 30 + OF_CUBE + 20
    told = [((0, 0), round(first * 1000)), ((0, 1), round(second * 1000)), round(last * 1000)]
    done(tmp_path, MAP.format(told))


class TestSkew:
    FLAGS = ("--sips", 4, *SMALL, "--check-invariants", "--bytes", "4K")

    def test_it_moves_times_and_never_data(self) -> None:
        together = run(*self.FLAGS, *launch_flags())
        apart = run(*self.FLAGS, *launch_flags(start_skew_ns="{2: 700}"))
        assert [each[0] for each in together.results()] == [each[0] for each in apart.results()]
        assert apart.document["runs"][0]["wrong"] == 0
        starts = [
            [each["kernels_start_ns"] for each in sorted(ran.document["launches"], key=lambda each: each["rank"])]
            for ran in (together, apart)
        ]
        assert [later - before for before, later in zip(*starts, strict=True)] == pytest.approx([0, 0, 700, 0])
        before, later = (ran.document["runs"][0] for ran in (together, apart))
        assert before["time_ns"] < later["time_ns"] <= before["time_ns"] + 700

    def test_it_is_drawn_from_a_seed(self) -> None:
        def starts(seed: int) -> list[float]:
            ran = run(*self.FLAGS, *launch_flags(max_start_skew_ns=200, start_skew_seed=seed, start_skew_ns="{0: 0}"))
            return [each["kernels_start_ns"] for each in ran.document["launches"]]

        first = starts(1)
        (without, *_) = [each["kernels_start_ns"] for each in run(*self.FLAGS, *launch_flags()).document["launches"]]
        skews = [start - without for start in first]
        assert skews[0] == 0, "as given, and not drawn"
        assert all(0 <= skew <= 200 for skew in skews)
        assert len(set(skews)) == 4
        assert starts(1) == first
        assert starts(2)[1:] != first[1:]


class TestRows:
    FLAGS = ("--sips", 4, *SMALL, "--check-invariants", "--bytes", "4K", "-n", 2)

    @pytest.mark.ideal
    def test_the_time_contains_the_launch(self) -> None:
        """On each SIP the same launch: 4 cubes of a PE each. Without it the row takes as long as its kernels."""
        free, routed = (run(*self.FLAGS, *flags).document["runs"][0] for flags in ((), launch_flags()))
        assert free["launch_ns"] == 0
        assert routed["time_ns"] - routed["launch_ns"] == pytest.approx(free["time_ns"])
        # To cube 3: cube 0 routers 0 1 2 3 7; cube 1 routers 4 5 6; cube 3 routers 2 1 0.
        farthest = 5 + 0.1 + 11 + 8 * 0.25 + 2 * (2 * 2 + 2 * 0.05 + 0.1) + 0.05 + 7
        before = HOST + TAKE + farthest + 4 * 64 / 16 + 50 + TO_PE
        assert before + HOST < routed["launch_ns"] < before + GATHER + 4 * 20 + (farthest - 13.15)

    @pytest.mark.parametrize("seed", batches(4, 1))
    def test_results_do_not_depend_on_the_mail(self, seed: int) -> None:
        """With skews and late starts, which move what meets what."""
        changes = {"max_start_skew_ns": 900, "start_skew_seed": seed, "start_margin_ns": 60}
        flags = (*self.FLAGS, "--topology", "torus_2d", *launch_flags(**changes))
        usual, shuffled = run(*flags), run(*flags, mail_seed=seed)
        assert usual.outcome.error is None
        assert usual.document["digest"] == shuffled.document["digest"]
        assert usual.document["launches"] == shuffled.document["launches"]
        assert any(each["late_by_ns"] for each in usual.document["launches"])


class TestExplain:
    @pytest.mark.ideal
    @pytest.mark.parametrize(
        "changes", [{}, {"start_margin_ns": 0}, {"start_margin_ns": 900}, {"max_start_skew_ns": 90}]
    )
    def test_all_of_the_path_has_a_price(self, changes: dict[str, object]) -> None:
        settings = ["sip.cube_mesh.w=1", "sip.cube_mesh.h=1", *launch_settings(**changes)]
        told = run_program(sips=1, bytes="1K", set=settings, engine="inproc", explain=True, explain_reruns=0)
        assert told.error is None, told.error
        found = msgspec.convert(told.document["explain"][-1], Explanation)
        assert sum(part.ps for part in found.parts) == found.until_ps - found.since_ps
        assert all(part.keys for part in found.parts), [part for part in found.parts if not part.keys]
        assert found.where == "sip0.host"
        (of_launch,) = [phase for phase in found.phases if phase.phase == "(launch)"]
        assert of_launch.path_ps == pytest.approx(told.runs[0]["launch_ns"] * 1000)

    @pytest.mark.parametrize(
        ("key", "more"),
        [
            ("launch.host_latency_ns", []),
            pytest.param("io_cpu.launch_ns", [], marks=pytest.mark.slow),
            pytest.param("m_cpu.dispatch_ns", ["m_cpu.dispatch_ns=400"], marks=pytest.mark.slow),
            ("launch.start_margin_ns", ["launch.start_margin_ns=900", "m_cpu.dispatch_ns=700"]),
        ],
    )
    def test_a_run_with_half_the_cost_confirms_what_is_said(self, key: str, more: list[str]) -> None:
        """With half the margin of the last case, kernels start late, by their messages."""
        flags: dict[str, Any] = {"sips": 2, "bytes": "4K", "engine": "inproc", "verify_data": False}
        settings = [*(SMALL[1::2]), *launch_settings(), *more]
        told = run_program(**flags, set=settings, explain=True, explain_reruns=0)
        found = msgspec.convert(told.document["explain"][-1], Explanation)
        (change,) = [each for each in found.what_if if each.name == key]
        faster = run_program(**flags, set=[*settings, *change.settings])
        assert change.saved_ps == round(1000 * (told.runs[0]["time_ns"] - faster.runs[0]["time_ns"]))


class TestInvariants:
    @pytest.mark.parametrize(
        ("method", "line"),
        [
            ("_start_together", "before its stamped start"),
            ("ended", "answers a message twice, or before its arrival"),
        ],
    )
    def test_broken_rules_are_found(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str, line: str
    ) -> None:
        usual = getattr(RoutedLaunch, method)

        def early(launch: Any, *args: Any) -> Any:
            if method == "ended":
                usual(launch, *args)
                return usual(launch, *args)
            launch.target_ps = launch._engine.now_ps + 1
            launch._start_one((0, 0), 1, 1)
            return usual(launch, *args)

        monkeypatch.setattr(RoutedLaunch, method, early)
        ran = run(*ONE_CUBE, *launch_flags(), script_file(tmp_path, SCRIPT + "    torch.launch(idle)\n"))
        assert ran.outcome.error is not None
        assert ran.outcome.error.kind == "InvariantViolation"
        assert line in ran.outcome.error.message


@pytest.mark.ideal
def test_without_a_launch_section_it_takes_no_time() -> None:
    settings = [*launch_flags(), "--set", "launch=null", "--set", "io_cpu=null", "--set", "m_cpu=null"]
    assert run(*settings).document["digest"] == run().document["digest"]
