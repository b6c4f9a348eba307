"""``ahbm-launch`` as users start it: one process a SIP, the table, the result file, refused flags."""

import csv
import json
import os
import re
import subprocess
import sys

import pytest
from launch import CHECKOUT, END_S, Done, environment, launched, launching, script, temporary_folder
from runs import run
from sweeps import crossed

from launcher.result.fields import ResultDocument, RunEntry, RunRow
from sipsim.chips.config import load
from sipsim.collectives.semantics import COLLECTIVES
from sipsim.core.fields import columns_of
from sipsim.records.report import RankRow
from sipsim.topology.links import TOPOLOGIES

pytestmark = pytest.mark.processes

TORUS = ("--sips", "4", "--topology", "torus_2d")
SMALL = ("--set", "sip.cube_mesh.w=2", "--set", "sip.cube_mesh.h=2")

# What every file of schema 1 has had; keys may be added, and ``--list fields`` has them all.
# fmt: off
KEYS = [
    "schema", "version", "argv", "seed", "digest", "config", "engine", "mail", "sips", "topology", "runs",
    "ranks", "sync", "wall_s", "status", "error",
]
RUN_KEYS = [
    "collective", "algorithm", "dtype", "op", "count", "bytes", "time_ns", "algbw_GBps", "busbw_GBps", "wrong",
    "checked",
]
RANK_KEYS = [
    "rank", "pid", "host", "restarts", "sim_end_ps", "events", "grants", "packets_sent", "packets_received",
    "bytes_sent", "tensor_sha256", "oplog_sha256", "results", "wall_s", "cpu_s", "peak_pss_mib",
    "run_s", "send_s", "wait_s",
]
# fmt: on


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Done:
    return launched(*TORUS, "--json", tmp_path_factory.mktemp("out") / "out.json")


class TestADefaultRun:
    def test_it_is_right(self, done):
        assert (done.exit_code, done.stderr) == (0, "")
        assert (done.document["status"], done.document["error"]) == ("ok", None)
        assert [(each["wrong"], each["checked"]) for each in done.document["runs"]] == [(0, True)]

    def test_each_sip_has_a_process_of_its_own(self, done):
        pids = [each["pid"] for each in done.document["ranks"]]
        assert len(set(pids)) == 4
        assert [each["rank"] for each in done.document["ranks"]] == [0, 1, 2, 3]

    def test_the_result_file_has_exactly_the_documented_keys(self, done):
        document = done.document
        assert list(document) == list(columns_of(ResultDocument))
        assert [[*each, "stack"] for each in document["runs"]] == [list(columns_of(RunEntry))]
        assert all(list(each) == list(columns_of(RankRow)) for each in document["ranks"])
        assert sorted(document["sync"]) == ["costliest_channels", "grants", "mean_window_ps", "reports"]
        assert sorted(document["wall_s"]) == ["simulate", "startup", "total"]

    def test_keys_that_were_there_before_stay(self, done):
        assert set(KEYS) <= set(done.document)
        assert set(RUN_KEYS) <= set(done.document["runs"][0])
        assert set(RANK_KEYS) <= set(done.document["ranks"][0])

    def test_what_the_document_tells_of_the_system(self, done):
        document = done.document
        assert (document["schema"], document["engine"], document["sips"], document["topology"]) == (
            1,
            "local",
            4,
            "torus_2d",
        )
        assert document["argv"][:4] == list(TORUS)
        assert sorted(document["config"]) == ["ccl", "components", "links", "topology"]
        assert document["config"]["topology"]["system"]["sips"]["count"] == 4

    def test_what_it_measures_can_be(self, done):
        document = done.document
        (told,) = document["runs"]
        assert (told["count"], told["bytes"]) == (32768, 65536)
        assert told["algbw_GBps"] == pytest.approx(65536 / told["time_ns"])
        assert told["busbw_GBps"] == pytest.approx(told["algbw_GBps"] * 1.5)
        assert 0 < document["wall_s"]["startup"] < document["wall_s"]["total"]
        assert 0 < document["wall_s"]["simulate"] < document["wall_s"]["total"]
        assert sum(each["packets_sent"] for each in document["ranks"]) == sum(
            each["packets_received"] for each in document["ranks"]
        )
        for each in document["ranks"]:
            assert each["sim_end_ps"] >= told["time_ns"] * 1000
            assert min(each[key] for key in ("events", "grants", "packets_sent", "bytes_sent")) > 0
            assert min(each[key] for key in ("wall_s", "cpu_s", "peak_pss_mib")) > 0
            assert re.fullmatch("[0-9a-f]{64}", each["tensor_sha256"] and each["oplog_sha256"])

    @pytest.mark.parametrize("repetitions", [2, pytest.param(10, marks=pytest.mark.slow)])
    def test_the_digest_is_that_of_every_repetition_and_of_one_process(self, done, repetitions):
        digests = {launched(*TORUS).digest for _ in range(repetitions)}
        assert digests == {done.document["digest"]} == {run(*TORUS).document["digest"]}


def test_what_no_process_has_read_is_told(tmp_path):
    """Routers are read when the plan is made, before the SIPs are forked; hbm and pe_math in a SIP; PE_GEMM nowhere."""
    keys = ("router.overhead_ns=2", "pe_math.overhead_ns=2", "hbm.params.front_end_ns=9", "pe_gemm.rows=64")
    flags = ("--sips", "2", "--n-elem", "8", "-q", "--json", tmp_path / "out.json")
    done = launched(*flags, *(word for key in keys for word in ("--set", key)))
    assert done.document["no_effect"] == ["pe_gemm.rows"]
    assert [line.partition("=")[0].split()[-1] for line in done.own_lines] == ["pe_gemm.rows"]


def test_wrong_numbers_are_reported_for_each_rank(tmp_path):
    (tmp_path / "mine.py").write_text(
        "from sipsim.chips.ahbm.collectives.algorithms.intercube_allreduce import *\ndef kernel(*args):\n    pass\n"
    )
    (tmp_path / "ccl.yaml").write_text(f"algorithms: {{mine: {{module: {tmp_path}/mine.py, topology: none}}}}\n")
    flags = ("--ccl", "ccl.yaml", "--algorithm", "mine", "--n-elem", "4", *SMALL, "--sips", "3")
    done = launched(*flags, "--json", tmp_path / "out.json", cwd=tmp_path)
    assert done.exit_code == 1
    told = re.findall(
        r"rank (\d): (\d+) wrong elements; first wrong at \[0, 0\]: expected \S+, got \S+$", done.stderr, re.MULTILINE
    )
    assert [rank for rank, _ in told] == ["0", "1", "2"]
    assert done.stderr.startswith("ahbm-launch: wrong_numbers: rank 0: ")
    wrong = sum(int(count) for _, count in told)
    assert done.stdout.splitlines()[3].split()[-1] == str(wrong)
    assert (done.document["status"], done.document["error"]["kind"]) == ("failed", "wrong_numbers")
    assert done.document["runs"][0]["wrong"] == wrong


def in_csv(value: object) -> str:
    if isinstance(value, list):
        return " ".join(map(str, value))
    return "" if value is None else str(value)


class TestOutput:
    def test_csv(self, tmp_path):
        files = ("--csv", tmp_path / "out.csv", "--json", tmp_path / "out.json")
        done = launched("--sips", "2", *SMALL, "-b", "1K", "-e", "4K", *files)
        with (tmp_path / "out.csv").open(newline="") as file:
            rows = list(csv.DictReader(file))
        assert list(rows[0]) == list(columns_of(RunRow))
        assert rows == [{key: in_csv(each[key]) for key in columns_of(RunRow)} for each in done.document["runs"]]
        assert len(rows) == len([line for line in done.stdout.splitlines() if not line.startswith("#")]) == 3

    @pytest.mark.parametrize(("flag", "engine"), crossed(["--json", "--csv", "--trace-ccl"], ["local", "inproc"]))
    def test_standard_output_in_place_of_the_table(self, tmp_path, flag, engine):
        """Nothing else is there, whatever a script prints, and no file of that name is made."""
        body = "print('said'); dist.all_reduce(torch.ones(4, 8))"
        words = ("--sips", "2", *SMALL, "--engine", engine, flag, "-", script(tmp_path, body))
        (tmp_path / "here").mkdir()
        done = launched(*words, cwd=tmp_path / "here")
        assert (done.exit_code, done.stderr.count("said")) == (0, 2), done.stderr
        assert os.listdir(tmp_path / "here") == []
        if flag == "--json":
            assert json.loads(done.stdout)["status"] == "ok"
        else:
            rows = list(csv.reader(done.stdout.splitlines()))
            first, lines = ("sips", 1) if flag == "--csv" else ("rank", 2)
            assert rows[0][0] == first
            assert len(rows) > lines
            assert {len(row) for row in rows} == {len(rows[0])}

    def test_a_refused_run_has_its_document_on_standard_output_too(self, tmp_path):
        for words in (("--sipz",), ("--sips", "6", "--topology", "torus_2d")):
            done = launched("--json", "-", *words, cwd=tmp_path)
            assert (done.exit_code, len(done.stderr.splitlines()), os.listdir(tmp_path)) == (2, 1, [])
            assert done.stderr == f"ahbm-launch: {json.loads(done.stdout)['error']['message']}\n"

    def test_rows_of_several_runs_make_one_table(self, tmp_path):
        """The usual flags, wherever they differ, stand in each row."""
        runs = (("--sips", "2"), ("--sips", "4", "--topology", "torus_2d", "--iters", "2", "--link", "ethernet_100g"))
        rows = [next(csv.DictReader(launched(*words, *SMALL, "--csv", "-").stdout.splitlines())) for words in runs]
        assert rows[0].keys() == rows[1].keys()
        keys = ("sips", "topology", "shape", "link", "cubes", "iters", "algorithm")
        assert [[row[key] for key in keys] for row in rows] == [
            ["2", "ring_1d", "", "ucie", "4", "1", "intercube_allreduce_fused"],
            ["4", "torus_2d", "2x2", "ethernet_100g", "4", "2", "intercube_allreduce_fused"],
        ]

    def test_quiet(self, tmp_path):
        done = launched("--sips", "2", *SMALL, "--quiet", "--json", tmp_path / "out.json")
        assert (done.exit_code, done.stdout, done.stderr) == (0, "", "")
        assert done.document["status"] == "ok"

    def test_dry_run(self, tmp_path):
        done = launched(*TORUS, "--dry-run", "--json", tmp_path / "out.json", cwd=tmp_path)
        assert (done.exit_code, done.stderr, done.made_files) == (0, "", False)
        line, expected = done.stdout.splitlines()
        assert re.fullmatch(
            r"about \d+\.\d{3} us of simulated time, by short runs; [\d.]+ s of wall time; \d+ MiB in 7 processes",
            expected,
        )
        assert re.fullmatch(
            r"would run intercube of 2048 elements per cube, f16 on 4 SIPs, torus_2d 2x2, link ucie, 16 cubes each, "
            r"\d+ channels, engine local; algorithm intercube_allreduce_fused: 64 participants, one per cube; "
            r"plan [0-9a-f]{16}",
            line,
        )
        assert done.document is None

    @pytest.mark.parametrize(
        ("what", "names"),
        [
            ("topologies", sorted(TOPOLOGIES.names())),
            ("links", sorted(load().links.links)),
            ("collectives", sorted(COLLECTIVES.names())),
            ("algorithms", ["name", *sorted(load().ccl.algorithms)]),
            ("engines", ["auto", "inproc", "k8s", "local", "manual", "mpi", "slurm", "ssh"]),
        ],
    )
    def test_lists(self, what, names):
        done = launched("--list", what)
        assert (done.exit_code, done.stderr, done.made_files) == (0, "", False)
        lines = done.stdout.splitlines()
        assert [line.split()[0] for line in lines] == names
        assert all(len(line.split()) > 1 for line in lines)

    def test_version(self):
        done = launched("--version")
        assert (done.exit_code, done.stderr) == (0, "")
        assert re.fullmatch(r"ahbm-launch \d+\.\d+\.\d+\n", done.stdout)

    def test_help_names_every_flag_once(self):
        done = launched("--help")
        assert (done.exit_code, done.stderr) == (0, "")
        flags = re.findall(r"^  (?:-\w, )?(--[a-z-]+)", done.stdout, re.MULTILINE)
        assert len(flags) == len(set(flags)) > 15
        assert {"--sips", "--engine", "--json", "--timeout", "--list"} <= set(flags)

    def test_a_reader_that_closes_early_is_no_error(self):
        with launching("--sips", "2", *SMALL) as launch:
            launch.process.stdout.close()
            stderr = launch.process.stderr.read()
            assert (launch.process.wait(END_S), stderr) == (0, "")

    def test_a_good_run_does_use_its_temporary_folder(self):
        """So that the tests below may conclude from an untouched folder that nothing was started."""
        assert launched("--sips", "1", *SMALL).made_files


BAD = {
    "misspelt flag": (("--sipz", "4"), "unknown flag --sipz; did you mean --sips?"),
    "no number": (("--sips", "four"), "'four' must be a whole number of at least 1"),
    "no square": (("--sips", "6", "--topology", "torus_2d"), "--shape 3x2"),
    "collective": (("--collective", "gather_all"), "all_reduce"),
    "two sizes": (("--bytes", "1K", "--n-elem", "2"), "give one of --bytes, --n-elem and -b/-e"),
    "set": (("--set", "system.sips.cuont=3"), "count"),
    "no script": (("nowhere.py",), "nowhere.py: no such file"),
    "no folder": (("--csv", "no/such/folder/a.csv"), "no/such/folder/a.csv: cannot be written"),
}
"""A mistake for each place that finds some: flags, values, rules of the system, registries, files, the config.
``inproc/transcripts`` has the others."""


class TestRefusals:
    @pytest.mark.fault
    @pytest.mark.parametrize("mistake", BAD)
    def test_one_line_and_nothing_is_started(self, tmp_path, mistake):
        flags, words = BAD[mistake]
        done = launched("--json", tmp_path / "out.json", *flags, cwd=tmp_path)
        assert (done.exit_code, done.stdout) == (2, "")
        (line,) = done.stderr.splitlines()
        assert line.startswith("ahbm-launch: ")
        assert words in line
        assert not done.made_files
        assert list(done.document) == list(columns_of(ResultDocument))
        assert (done.document["status"], done.document["error"]["kind"]) == ("failed", "config")
        assert line == f"ahbm-launch: {done.document['error']['message']}"
        assert os.listdir(tmp_path) == ["out.json"]

    def test_a_refusal_that_cannot_be_written_is_still_printed(self):
        done = launched("--sips", "2", "--topology", "moebius", "--json", "/proc/out.json")
        assert (done.exit_code, len(done.stderr.splitlines())) == (2, 1)


class TestTemporaryFolder:
    @pytest.mark.fault
    def test_one_whose_name_is_too_long_for_sockets(self):
        with temporary_folder() as temp:
            deep = temp / ("x" * 90)
            deep.mkdir()
            done = launch_in(deep)
            assert (done.returncode, done.stdout) == (2, "")
            assert "too long for socket names; set TMPDIR to a shorter path" in done.stderr
            assert len(done.stderr.splitlines()) == 1
            assert os.listdir(deep) == []

    @pytest.mark.fault
    def test_none_that_can_be_written(self, tmp_path):
        """Python tries several places; here none of them is writable."""
        imports = "import sys, tempfile\nfrom launcher.commands.launch import main\n"
        code = f"{imports}tempfile.tempdir = '/no/such/folder'\n"
        with temporary_folder() as temp:
            done = subprocess.run(
                [sys.executable, "-c", f"{code}sys.exit(main(sys.argv[1:]))", "--sips", "2", "--json", "out.json"],
                cwd=tmp_path,
                env=environment(temp),
                capture_output=True,
                text=True,
                timeout=END_S,
            )
        assert (done.returncode, done.stdout) == (2, "")
        (line,) = done.stderr.splitlines()
        assert line.startswith("ahbm-launch: no temporary folder can be created: ")
        assert line.endswith("; set TMPDIR to a writable folder")
        assert json.loads((tmp_path / "out.json").read_text())["status"] == "failed"

    def test_one_that_does_not_exist_is_passed_over(self):
        with temporary_folder() as temp:
            done = launch_in(temp / "missing", TEMP=str(temp))
            assert (done.returncode, done.stderr) == (0, "")
            assert os.listdir(temp) == []


def launch_in(temp: object, **env: str) -> "subprocess.CompletedProcess[str]":
    """A small run with a temporary folder that :func:`launched` could not make."""
    command = [sys.executable, "-m", "launcher", "--sips", "2", *SMALL]
    env = environment(str(temp), **env)
    return subprocess.run(command, env=env, cwd=CHECKOUT, capture_output=True, text=True, timeout=END_S)


@pytest.mark.fault
def test_two_launches_at_once_do_not_know_each_other(tmp_path):
    script = tmp_path / "meet.py"
    script.write_text(
        "import os, sys\ndef worker(rank, world_size, torch):\n    torch.distributed.init_process_group()\n"
        "    print('here', flush=True)\n    open(sys.argv[1]).read() if rank == 0 else None\n"
        "    torch.distributed.all_reduce(torch.ones(4, 8))\n"
    )
    gates = [tmp_path / name for name in ("one", "other")]
    for gate in gates:
        os.mkfifo(gate)
    with (
        launching("--sips", "2", *SMALL, script, gates[0]) as one,
        launching("--sips", "2", *SMALL, script, gates[1]) as other,
    ):
        for launch in (one, other):
            launch.words("here", 2)
        # Both stand in the middle of their run now.
        for gate in gates:
            gate.write_text("")
        ends = [launch.end() for launch in (one, other)]
    assert [done.exit_code for done in ends] == [0, 0]
    assert ends[0].digest == ends[1].digest
    assert [done.left_files for done in ends] == [[], []]
