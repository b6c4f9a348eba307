"""Cases of benches in processes of their own: the same figures with any number; one that dies takes none with it."""

import sys
from pathlib import Path

import pytest
from tenstorrent.compare import Job, Runner, validate

from launcher.bench.base import Case
from launcher.bench.published import default_files, read_published

pytestmark = pytest.mark.processes
LAB = """
import os
from launcher.bench.base import BENCHES, Bench, Figure

class Deadly(Bench):
    def add_flags(self, group): pass
    def cases(self, chosen): return []
    def effort(self, case): return -case.channels
    def measure(self, case, machine):
        if case.test == "dies":
            os._exit(9)
        if case.test == "fails":
            raise ValueError("no such thing")
        return [Figure(case.test, 16, "ns", "time", float(case.channels), str(os.getpid()))]

BENCHES.register("bench_lab.deadly")(Deadly())
"""


def test_figures_do_not_depend_on_the_number_of_processes() -> None:
    ids = {"TT0002", "TT0005", "TT0006", "TT0011", "TT0014", "TT0058"}
    rows = [row for path in default_files() for row in read_published(path) if row.id in ids]
    found = []
    for processes in (1, 2, 3):
        with Runner(processes) as runner:
            found.append(validate(rows, {"wormhole": ("system.chip_params.risc.poll_ns=7",)}, runner))
    assert found[0] == found[1] == found[2]
    assert all(verdict.simulated for verdict in found[0])


def test_a_process_that_dies_takes_no_other_case_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bench_lab").mkdir()
    (tmp_path / "bench_lab" / "__init__.py").touch()
    (tmp_path / "bench_lab" / "deadly.py").write_text(LAB)
    monkeypatch.syspath_prepend(str(tmp_path))
    tests = ["lives", "lives", "dies", "fails", *["lives"] * 4]
    jobs = [Job("bench_lab.deadly", Case(test, number), "wormhole") for number, test in enumerate(tests)]
    try:
        with Runner(2) as runner:
            for _ in range(2):
                outcomes = runner.outcomes(jobs)
                assert list(outcomes) == jobs
                for job, outcome in outcomes.items():
                    expected = {"dies": "the process that ran it has ended", "fails": "ValueError: no such thing"}
                    assert outcome.error == expected.get(job.case.test, "")
                    assert [figure.value for figure in outcome.figures] == (
                        [job.case.channels] if job.case.test == "lives" else []
                    )
            more = [Job("bench_lab.deadly", Case("lives", number), "wormhole") for number in range(90, 96)]
            figures = [outcome.figures[0] for outcome in runner.outcomes(more).values()]
            assert [figure.value for figure in figures] == list(range(90, 96))
            assert len({figure.note for figure in figures}) <= 2, "each had a process of its own"
    finally:
        for name in ("bench_lab", "bench_lab.deadly"):
            sys.modules.pop(name, None)
