"""The result file and its digest: what counts as simulated and what does not."""

import csv
import json
import os
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from outcomes import rank_outcome, record

from broker.wire import Finished
from launcher.options import Options, parse
from launcher.report.outcome import Outcome, RunError
from launcher.result import document as result
from launcher.run.prepare import prepare
from launcher.supervise.run import Run
from sipsim.core.errors import ConfigError
from sipsim.records.report import RankOutcome

SMALL = ("--set", "sip.cube_mesh.w=1", "--set", "sip.cube_mesh.h=1")
NOT_SIMULATED = {
    "pid": 999,
    "host": "elsewhere",
    "grants": 55,
    "wall_s": 9.5,
    "cpu_s": 9.5,
    "peak_pss_mib": 95.0,
    "run_s": 95.0,
    "send_s": 95.0,
    "wait_s": 95.0,
}
SIMULATED = {"tensor_sha256": "other", "oplog_sha256": "other", "sim_end_ps": 3001}


def outcome(*ranks: RankOutcome) -> Outcome:
    made = Outcome(2)
    made.ranks = {told.rank: told for told in (ranks or (rank_outcome(0), rank_outcome(1)))}
    made.sync = Finished(20, 10, 1000, 4)
    return made


@cache
def system(*flags: str) -> Run:
    return prepare(parse([*SMALL, *flags]))


def digest(made: Outcome, *flags: str) -> str | None:
    return result.digest(system(*flags), made)


def document(made: Outcome, *flags: str) -> dict[str, Any]:
    return result.build(system(*flags), ["the", "words"], made)


class TestDigest:
    def test_it_is_that_of_the_same_outcome(self) -> None:
        assert digest(outcome()) == digest(outcome())
        assert len(digest(outcome())) == 64

    @pytest.mark.parametrize("field", NOT_SIMULATED)
    def test_what_is_not_simulated_is_not_in_it(self, field: str) -> None:
        changed = outcome(rank_outcome(0), rank_outcome(1, **{field: NOT_SIMULATED[field]}))
        assert digest(changed) == digest(outcome())

    def test_nor_are_walls_and_the_synchronisation(self) -> None:
        changed = outcome()
        changed.startup_s = changed.simulate_s = changed.total_s = 7.0
        changed.sync = Finished(1, 2, 3, 4)
        assert digest(changed) == digest(outcome())

    @pytest.mark.parametrize("flags", [("--engine", "inproc"), ("--timeout", "9"), ("-q",), ("--no-verify-data",)])
    def test_nor_is_how_it_was_run(self, flags: tuple[str, ...]) -> None:
        assert digest(outcome(), *flags) == digest(outcome())

    @pytest.mark.parametrize("rank", [0, 1])
    @pytest.mark.parametrize("field", SIMULATED)
    def test_what_is_simulated_is(self, field: str, rank: int) -> None:
        ranks = [rank_outcome(0), rank_outcome(1)]
        ranks[rank] = rank_outcome(rank, **{field: SIMULATED[field]})
        assert digest(outcome(*ranks)) != digest(outcome())

    def test_so_is_which_rank_held_what(self) -> None:
        swapped = outcome(rank_outcome(0, tensor_sha256="t1"), rank_outcome(1, tensor_sha256="t0"))
        assert digest(swapped) != digest(outcome())

    @pytest.mark.parametrize(
        "flags",
        [
            ("--set", "wire.ns_per_mm=0.2"),
            ("--set", "defaults.n_slots=4"),
            ("--set", "cube.pes=4"),
            ("--link", "ethernet_100g"),
            ("--topology", "mesh_2d_no_wrap", "--shape", "2x1"),
        ],
        ids=" ".join,
    )
    def test_so_is_the_system(self, flags: tuple[str, ...]) -> None:
        assert digest(outcome(), *flags) != digest(outcome())

    def test_the_order_in_which_ranks_answered_is_not_seen(self) -> None:
        assert digest(outcome(rank_outcome(1), rank_outcome(0))) == digest(outcome())

    def test_a_partial_run_has_none(self) -> None:
        assert digest(outcome(rank_outcome(0))) is None
        cut = outcome()
        cut.cut_short = True
        assert digest(cut) is None


class TestDocument:
    def test_a_good_run(self) -> None:
        made = document(outcome())
        assert (made["schema"], made["argv"], made["seed"]) == (1, ["the", "words"], 0)
        assert (made["engine"], made["sips"], made["topology"]) == ("local", 2, "ring_1d")
        assert (made["status"], made["error"], made["digest"]) == ("ok", None, digest(outcome()))
        assert made["sync"] == {"reports": 20, "grants": 10, "mean_window_ps": 250, "costliest_channels": []}
        assert [each["rank"] for each in made["ranks"]] == [0, 1]
        assert [each["restarts"] for each in made["ranks"]] == [0, 0]

    def test_the_time_is_the_mean_over_iterations_from_the_first_start_to_the_latest_end(self) -> None:
        early = record(spans_ps=((1000, 1500), (3000, 3100)))
        late = record(spans_ps=((1200, 2500), (3000, 5500)))
        (run,) = document(outcome(rank_outcome(0, early), rank_outcome(1, late)))["runs"]
        assert run["time_ns"] == 2.0
        assert run["algbw_GBps"] == pytest.approx(64.0)
        assert run["busbw_GBps"] == pytest.approx(64.0 * 2 * (2 - 1) / 2)

    def test_a_run_of_no_time_has_no_bandwidth(self) -> None:
        instant = record(spans_ps=((5, 5),))
        (run,) = document(outcome(rank_outcome(0, instant), rank_outcome(1, instant)))["runs"]
        assert (run["time_ns"], run["algbw_GBps"], run["busbw_GBps"]) == (0, 0, 0)

    def test_wrong_elements_are_counted_over_ranks(self) -> None:
        ranks = [rank_outcome(0, record(wrong=3)), rank_outcome(1, record(wrong=4))]
        (run,) = document(outcome(*ranks))["runs"]
        assert (run["wrong"], run["checked"]) == (7, True)

    def test_a_run_that_one_rank_did_not_check_is_not_checked(self) -> None:
        (run,) = document(outcome(rank_outcome(0), rank_outcome(1, record(wrong=None))))["runs"]
        assert (run["wrong"], run["checked"]) == (0, False)

    def test_only_what_every_rank_completed_is_a_run(self) -> None:
        assert len(document(outcome(rank_outcome(0, record(), record()), rank_outcome(1)))["runs"]) == 1
        assert document(outcome(rank_outcome(0)))["runs"] == []

    def test_a_failed_run(self) -> None:
        failed = outcome(rank_outcome(1))
        failed.sync = None
        failed.fail(RunError("exception", 1, "the line", "the traceback"))
        made = document(failed)
        assert (made["status"], made["digest"]) == ("failed", None)
        assert made["error"] == {"kind": "exception", "rank": 1, "message": "the line"}
        assert made["sync"] == {"reports": 0, "grants": 0, "mean_window_ps": 0, "costliest_channels": []}
        assert [each["rank"] for each in made["ranks"]] == [1]


class TestTheSystem:
    """What the document and each row say of it, so that rows of several files can stand in one table."""

    @pytest.mark.parametrize(
        ("flags", "shape", "link"),
        [
            ((), None, "ucie"),
            (("--topology", "torus_2d", "--shape", "2x1"), "2x1", "ucie"),
            (("--topology", "mesh_2d_no_wrap", "--shape", "1x2", "--link", "ethernet_100g"), "1x2", "ethernet_100g"),
            (("--set", "system.sips.links={0.E: ethernet_100g}"), None, "ethernet_100g, ucie"),
        ],
    )
    def test_in_the_document_in_rows_and_in_words(self, flags: tuple[str, ...], shape: str | None, link: str) -> None:
        made, plan = document(outcome(), *flags), system(*flags).plan
        (row,) = made["runs"]
        for where in (made, row):
            assert (where["sips"], where["topology"]) == (2, plan.system.topology)
            assert (where["shape"], where["link"], where["cubes"]) == (shape, link, 1)
        assert row["iters"] == 2
        topology = f"{plan.system.topology} {shape}" if shape else plan.system.topology
        links = f"link{'s' if ',' in link else ''} {link}"
        assert plan.system.describe() == f"2 SIPs, {topology}, {links}, 1 cube each"


class TestFiles:
    def options(self, *flags: object) -> Options:
        return parse([str(flag) for flag in flags])

    def test_both(self, tmp_path: Path) -> None:
        chosen = self.options("--json", tmp_path / "a.json", "--csv", tmp_path / "a.csv")
        made = document(outcome())
        result.check_writable(chosen)
        result.write(chosen, made)
        assert (tmp_path / "a.json").read_text() == json.dumps(made, indent=1) + "\n"
        with (tmp_path / "a.csv").open(newline="") as file:
            rows = list(csv.reader(file))
        assert rows[0] == list(result.RUN_COLUMNS)
        of_table = [{**made["runs"][0], "group": "0 1"}[name] for name in result.RUN_COLUMNS]
        assert rows[1:] == [["" if value is None else str(value) for value in of_table]]
        assert set(made["runs"][0]) - set(rows[0]) == {"engines", "links", "kernel_time", "tlbs", "time_ps"}
        assert sorted(os.listdir(tmp_path)) == ["a.csv", "a.json"]

    def test_neither(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        result.write(self.options(), document(outcome()))
        assert os.listdir(tmp_path) == []

    @pytest.mark.parametrize("flag", ["--json", "--csv"])
    def test_standard_output(self, tmp_path: Path, monkeypatch: Any, capsys: Any, flag: str) -> None:
        monkeypatch.chdir(tmp_path)
        chosen, made = self.options(flag, "-"), document(outcome())
        result.check_writable(chosen)
        result.write(chosen, made)
        text = capsys.readouterr().out
        if flag == "--json":
            assert text == json.dumps(made, indent=1) + "\n"
        else:
            assert [len(row) for row in csv.reader(text.splitlines())] == [len(result.RUN_COLUMNS)] * 2
            assert "\r" not in text
        assert os.listdir(tmp_path) == []

    def test_a_refusal_on_standard_output(self, tmp_path: Path, monkeypatch: Any, capsys: Any) -> None:
        monkeypatch.chdir(tmp_path)
        result.write_refusal(Path("-"), ["x"], "no such thing")
        assert json.loads(capsys.readouterr().out)["error"]["message"] == "no such thing"
        assert os.listdir(tmp_path) == []

    def test_a_reader_of_the_old_file_never_sees_half_of_the_new(self, tmp_path: Path) -> None:
        path = tmp_path / "a.json"
        path.write_text("old")
        with path.open() as reader:
            result.write(self.options("--json", path), document(outcome()))
            assert reader.read() == "old"
        assert json.loads(path.read_text())["schema"] == 1

    def test_what_is_no_file_is_written_to_as_it_is(self, tmp_path: Path) -> None:
        pipe = tmp_path / "pipe"
        os.mkfifo(pipe)
        # Open for both: neither end waits for the other. The document is smaller than a pipe.
        end = os.open(pipe, os.O_RDWR)
        result.write(self.options("--json", pipe), {"schema": 1})
        assert json.loads(os.read(end, 4096)) == {"schema": 1}
        os.close(end)

    @pytest.mark.parametrize("flag", ["--json", "--csv", "--csv-links"])
    @pytest.mark.parametrize("where", ["", "missing/a"])
    def test_what_cannot_be_written_is_found_before_the_run(self, tmp_path: Path, flag: str, where: str) -> None:
        path = tmp_path / where
        with pytest.raises(ConfigError) as caught:
            result.check_writable(self.options(flag, path))
        assert str(caught.value) == f"{flag} {path}: cannot be written; name a file in a folder that exists"

    def test_a_refusal(self, tmp_path: Path) -> None:
        path = tmp_path / "a.json"
        result.write_refusal(path, ["x"], "no such thing", self.options("--sips", 3, "--seed", 4))
        made = json.loads(path.read_text())
        assert list(made) == list(document(outcome()))
        assert (made["sips"], made["seed"], made["status"], made["digest"]) == (3, 4, "failed", None)
        assert made["error"] == {"kind": "config", "rank": None, "message": "no such thing"}

    def test_a_refusal_of_a_command_line_that_was_not_understood(self, tmp_path: Path) -> None:
        path = tmp_path / "a.json"
        result.write_refusal(path, ["--zzz"], "unknown flag --zzz")
        assert list(json.loads(path.read_text())) == list(document(outcome()))

    @pytest.mark.parametrize("where", ["", "missing/a.json"])
    def test_a_refusal_that_cannot_be_written_is_none_the_less_one(self, tmp_path: Path, where: str) -> None:
        result.write_refusal(tmp_path / where, [], "no")
        result.write_refusal(None, [], "no")
        assert os.listdir(tmp_path) == []
