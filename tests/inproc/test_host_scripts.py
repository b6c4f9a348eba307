"""Host scripts and kernels of users: the documented shape, errors of the API, deadlock reports.

Most runs have every SIP in this process; tests marked ``processes`` compare with one process per SIP.
"""

import importlib
import re
import signal
import sys
from pathlib import Path
from textwrap import dedent
from types import ModuleType

import numpy as np
import pytest
from launch import launched
from runs import Run, ccl_file, run, script_file

from sipsim.core.errors import ConfigError
from sipsim.node.script import ScriptNamespace

SMALL = ("--set", "sip.cube_mesh.w=2", "--set", "sip.cube_mesh.h=2")
RING = ("--sips", 4, *SMALL)

DOCUMENTED = """
import numpy as np

n_elem = 8
init = np.arange(16 * n_elem, dtype=np.float16).reshape(16, n_elem) % 5

def worker(rank, world_size, torch):
    dist = torch.distributed
    dist.init_process_group(backend="ahbm")
    dp = DPPolicy(cube="row_wise", pe="replicate", num_cubes=16, num_pes=1)
    tensor = torch.zeros((16, n_elem), dtype="f16", dp=dp)
    tensor.copy_(torch.from_numpy(init))
    dist.all_reduce(tensor, op="sum")
"""


def run_worker(folder: Path, body: str, *flags: object, top: str = "", args: tuple[object, ...] = ()) -> Run:
    """Run a script whose worker has joined the process group and does ``body``."""
    lines = ["dist = torch.distributed", "dist.init_process_group()", *body.strip().splitlines()]
    source = "\n    ".join(["def worker(rank, world_size, torch):", *lines])
    return run(*(flags or RING), script_file(folder, f"{top}\n{source}\n"), *args)


def failure(done: Run) -> tuple[int, str, str]:
    """(exit code, kind, line) of a run that failed."""
    assert done.outcome.error is not None
    assert done.document["status"] == "failed"
    assert done.document["digest"] is None
    assert "\n" not in done.outcome.error.message
    return done.outcome.exit_code, done.outcome.error.kind, done.outcome.error.message


class TestShape:
    @pytest.mark.ideal
    @pytest.mark.parametrize("sips", [1, 2, 4])
    def test_the_documented_script(self, tmp_path, sips):
        done = run("--sips", sips, script_file(tmp_path, DOCUMENTED))
        (told,) = done.document["runs"]
        assert (told["wrong"], told["checked"], told["count"], told["dtype"]) == (0, True, 128, "f16")
        init = np.arange(128).reshape(16, 8) % 5
        for rank in range(sips):
            np.testing.assert_array_equal(done.tensor(rank), np.tile(sips * init.sum(axis=0), (16, 1)))

    @pytest.mark.parametrize("flags", [(), ("--variant", "adr")], ids=["default", "adr"])
    @pytest.mark.parametrize("sips", [1, 2, 4])
    def test_the_script_of_adr_0023_d10(self, tmp_path, sips, flags):
        """One row, and a layout without numbers: the row lies on one cube, and is added over the ranks."""
        body = """
            init = np.arange(world_size * 8, dtype=np.float16).reshape(1, -1) + rank
            tensor = torch.zeros((1, world_size * 8), dtype="f16", dp=DPPolicy())
            tensor.copy_(torch.from_numpy(init))
            dist.all_reduce(tensor, op="sum")
        """
        done = run_worker(tmp_path, dedent(body), "--sips", sips, *flags, top="import numpy as np")
        assert done.outcome.error is None
        expected = sips * np.arange(sips * 8) + sum(range(sips))
        for rank in range(sips):
            np.testing.assert_array_equal(done.tensor(rank), [expected])

    def test_arguments(self, tmp_path):
        source = "import sys\ndef worker(rank, world_size, torch):\n    print(rank, sys.argv[1:])\n    assert {}"
        path = script_file(tmp_path, source.format("sys.argv == [__file__, '--bytes', '-q', 'x y', '--']"))
        done = run(*RING, "--", path, "--bytes", "-q", "x y", "--")
        assert done.outcome.error is None
        assert done.document["argv"][-4:] == ["--bytes", "-q", "x y", "--"]

    def test_a_module_of_a_package(self, tmp_path, monkeypatch):
        """It may import its siblings relatively, as under ``python -m``."""
        package = tmp_path / "mypackage"
        package.mkdir()
        (package / "__init__.py").write_text("BASE = 40\n")
        (package / "part.py").write_text("from . import BASE\nANSWER = BASE + 2\n")
        source = "import sys\nfrom .part import ANSWER\ndef worker(rank, world_size, torch):\n    {}"
        (package / "job.py").write_text(source.format("assert (ANSWER, sys.argv[1:]) == (42, ['7'])"))
        monkeypatch.syspath_prepend(tmp_path)
        done = run(*RING, "-m", "mypackage.job", 7)
        assert done.outcome.error is None, done.outcome.error.message
        # Found by the launcher, before any rank ran; the ranks took theirs with them.
        sys.modules.pop("mypackage", None)
        assert not [name for name in sys.modules if name.startswith("mypackage")]

    @pytest.mark.parametrize(
        ("source", "line"),
        [
            ("worker = " + "1+" * 9999 + "1", "not valid Python: "),
            ("worker = " + "(" * 999 + ")" * 999, "not valid Python: "),
            ("worker = 0\0", "not valid Python: source code string cannot contain null bytes"),
        ],
    )
    def test_no_worker(self, tmp_path, source, line):
        with pytest.raises(ConfigError) as caught:
            run(*RING, script_file(tmp_path, source))
        assert line in str(caught.value)

    @pytest.mark.parametrize("how", ["sys.exit(0)", "sys.exit()", "return", "raise SystemExit"])
    def test_a_normal_end(self, tmp_path, how):
        done = run_worker(tmp_path, f"dist.all_reduce(torch.ones(4, 8))\n{how}", top="import sys")
        assert (done.outcome.exit_code, len(done.document["runs"])) == (0, 1)

    @pytest.mark.parametrize("error", ["KeyboardInterrupt", "GeneratorExit", "BaseException", "greenlet.GreenletExit"])
    @pytest.mark.parametrize("where", ["script", "kernel"])
    def test_whatever_is_raised_is_an_exception(self, tmp_path, request, error, where):
        # Of Ctrl-C Python makes no exception in a run.
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)
        request.addfinalizer(lambda: signal.signal(signal.SIGINT, before))
        top = f"import greenlet\ndef kernel(tl): raise {error}('told')"
        body = f"if rank: raise {error}('told')" if where == "script" else "torch.launch(kernel)"
        exit_code, kind, line = failure(run_worker(tmp_path, body, top=top))
        assert (exit_code, kind) == (5, "exception")
        assert f"{error.rpartition('.')[2]}: told" in line

    def test_imports_from_its_folder_even_later(self, tmp_path):
        script_file(tmp_path, "VALUE = 5\n", "beside_early.py")
        (tmp_path / "more").mkdir()
        script_file(tmp_path / "more", "VALUE = 6\n", "beside_late.py")
        top = f"import sys\nimport beside_early\nsys.path.append({str(tmp_path / 'more')!r})"
        body = "dist.all_reduce(torch.ones(4, 8))\nimport beside_late\nassert beside_late.VALUE == 6"
        done = run_worker(tmp_path, body, top=top)
        assert done.outcome.error is None, done.outcome.error.message
        assert str(tmp_path / "more") not in sys.path
        assert not {"beside_early", "beside_late", "__ahbm_script__"} & set(sys.modules)


class TestCollectives:
    @pytest.mark.ideal
    def test_several(self, tmp_path):
        body = """
a, b = torch.full((4, 8), rank + 1, dtype="i32"), torch.ones((8, 4), dtype="f16")
dist.all_reduce(a)
dist.all_reduce(b)
dist.all_reduce(a)
"""
        done = run_worker(tmp_path, body)
        assert [(each["wrong"], each["checked"]) for each in done.document["runs"]] == [(0, True)] * 3
        assert [each["dtype"] for each in done.document["runs"]] == ["i32", "f16", "i32"]
        assert (done.tensor(1, 0) == (1 + 2 + 3 + 4) * 4 * 16).all()
        # No row a cube, but two: an all-reduce over the SIPs.
        assert (done.tensor(1, 1) == 4).all()

    @pytest.mark.ideal
    def test_started_and_waited_for_later(self, tmp_path):
        body = """
a, b = torch.full((4, 8), rank + 1, dtype="i32"), torch.ones((4, 8), dtype="i32")
works = [dist.all_reduce(each, async_op=True) for each in (a, b, a)]
assert [work.is_completed() for work in works] == [False] * 3
assert works[1].wait() is True
assert [work.is_completed() for work in works] == [True, True, False]
works[2].wait()
works[0].wait()
"""
        done = run_worker(tmp_path, body)
        assert done.outcome.error is None, done.outcome.error.message
        assert [(each["wrong"], each["checked"]) for each in done.document["runs"]] == [(0, True)] * 3
        assert (done.tensor(3, 0) == 10 * 4 * 16).all()
        assert (done.tensor(3, 1) == 16).all()

    def test_one_without_a_wait_still_ends(self, tmp_path):
        done = run_worker(tmp_path, "dist.all_reduce(torch.ones(4, 8), async_op=True)")
        assert (done.outcome.exit_code, done.document["runs"][0]["wrong"]) == (0, 0)

    def test_a_synchronous_one_returns_none(self, tmp_path):
        done = run_worker(tmp_path, "assert dist.all_reduce(torch.ones(4, 8)) is None")
        assert done.outcome.error is None

    def test_the_process_group(self, tmp_path):
        body = """
assert (dist.get_rank(), dist.get_world_size(), dist.is_initialized()) == (rank, 4, True) == (rank, world_size, True)
dist.destroy_process_group()
assert not dist.is_initialized()
dist.init_process_group(backend="ahbm", world_size=4, rank=rank, init_method="env://")
"""
        assert run_worker(tmp_path, body).outcome.error is None


class TestExceptions:
    BODY = """
dist.all_reduce(torch.ones(4, 8))
if rank == 2:
    inner({})
dist.all_reduce(torch.ones(4, 8))
"""
    TOP = "def inner(key):\n    return {'a': 1}[key]\n"

    @pytest.mark.ideal
    def test_a_traceback_of_the_users_frames_only(self, tmp_path):
        done = run_worker(tmp_path, self.BODY.format("'b'"), top=self.TOP)
        exit_code, kind, line = failure(done)
        assert (exit_code, kind, done.outcome.error.rank) == (5, "exception", 2)
        time = done.outcome.ranks[2].sim_end_ps
        assert time > 0
        assert line.startswith("KeyError: 'b' (rank 2, host script, at ")
        assert line.endswith(f" {time / 1000:.3f} ns)")
        lines = done.outcome.error.detail.splitlines()
        files = [line.split('"')[1] for line in lines if line.startswith("  File")]
        assert files == [str(tmp_path / "script.py")] * 2
        assert lines[0] == "Traceback (most recent call last):"
        assert lines[-1] == "KeyError: 'b'"
        assert [line.strip() for line in lines if "inner" in line or "return" in line][-1] == "return {'a': 1}[key]"

    def test_the_first_of_two_failed_ranks_is_reported(self, tmp_path):
        body = "if rank == 3:\n    1 / 0\ndist.all_reduce(torch.ones(4, 8))\nraise ValueError('late')"
        assert "ZeroDivisionError: division by zero (rank 3," in failure(run_worker(tmp_path, body))[2]
        for seed in range(5):
            done = run(*RING, tmp_path / "script.py", mail_seed=seed)
            assert "ZeroDivisionError: division by zero (rank 3," in failure(done)[2]

    def test_earlier_collectives_are_reported(self, tmp_path):
        done = run_worker(tmp_path, self.BODY.format("'b'"), top=self.TOP)
        assert done.outcome.complete
        assert [len(done.outcome.ranks[rank].runs) for rank in range(4)] == [1] * 4
        assert [each["wrong"] for each in done.document["runs"]] == [0]


# --- ranks are kept apart ---------------------------------------------------------------------------------------

STATEFUL = """
import random
import numpy as np
import stateful_helper

COUNT = 0

def count():
    global COUNT
    COUNT += 1
    return COUNT

def worker(rank, world_size, torch):
    dist = torch.distributed
    dist.init_process_group(backend="ahbm")
    seen = []
    for turn in range(3):
        tensor = torch.zeros((4, 5), dtype="f32")
        mine = [count(), stateful_helper.count(), random.random(), np.random.rand(), random.randint(0, 9)]
        tensor.copy_(torch.from_numpy(np.tile(mine, (4, 1))))
        before = tensor.numpy()
        dist.all_reduce(tensor)
        import stateful_late
        assert stateful_late.count() == turn + 1, "its module is another rank's"
        seen.append(mine)
    assert [mine[0] for mine in seen] == [1, 2, 3]
    assert [mine[1] for mine in seen] == [1, 2, 3]
    torch.zeros((4, 15), dtype="f32").copy_(torch.from_numpy(np.tile(np.ravel(seen), (4, 1))))
"""
COUNTER = "STATE = []\n\ndef count():\n    STATE.append(0)\n    return len(STATE)\n"


def stateful(folder: Path) -> str:
    for name in ("stateful_helper.py", "stateful_late.py"):
        script_file(folder, COUNTER, name)
    return script_file(folder, STATEFUL)


class TestIsolationOfRanks:
    def test_modules_and_random_states(self, tmp_path):
        done = run(*RING, stateful(tmp_path))
        assert done.outcome.error is None, done.outcome.error.message
        rows = [done.tensor(rank)[0].tolist() for rank in range(4)]
        drawn = [value for row in rows for turn in range(3) for value in row[5 * turn + 2 : 5 * turn + 4]]
        assert len(set(drawn)) == 4 * 3 * 2
        assert not [name for name in sys.modules if name.startswith("stateful")]

    def test_random_states_of_the_caller_are_unchanged(self, tmp_path):
        import random

        random.seed(5)
        np.random.seed(5)
        first = run(*RING, stateful(tmp_path))
        assert (random.random(), np.random.rand()) == (random.Random(5).random(), np.random.RandomState(5).rand())
        assert run(*RING, stateful(tmp_path)).results() == first.results()

    def test_the_seed_changes_the_results(self, tmp_path):
        assert run(*RING, stateful(tmp_path)).results() != run(*RING, "--seed", 1, stateful(tmp_path)).results()

    def test_the_order_of_the_mail_does_not_change_the_results(self, tmp_path):
        plain = run(*RING, stateful(tmp_path)).results()
        for seed in range(2):
            assert run(*RING, stateful(tmp_path), mail_seed=seed).results() == plain

    @pytest.mark.processes
    def test_the_digest_equals_that_of_local(self, tmp_path):
        digests = [launched(*RING, "--engine", engine, stateful(tmp_path)).digest for engine in ("inproc", "local")]
        assert digests[0] == digests[1] == run(*RING, stateful(tmp_path)).document["digest"]

    def test_a_folder_with_the_same_prefix_is_not_the_scripts(self, tmp_path, monkeypatch):
        """``/a/b`` is no part of ``/a/bc``."""
        other = ModuleType("other_beside")
        other.__file__ = f"{tmp_path}-more/other_beside.py"
        monkeypatch.setitem(sys.modules, "other_beside", other)
        assert run_worker(tmp_path, "pass").outcome.error is None
        assert sys.modules["other_beside"] is other

    def test_packages_of_the_simulator_are_shared(self, tmp_path, monkeypatch):
        """A script at the root of a checkout has them in its folder."""
        import sipsim.node.script

        world = ScriptNamespace(Path(sipsim.__file__).parents[1] / "script.py", (), 0, 0)
        world.enter()
        world.leave()
        assert sys.modules["sipsim.node.script"] is sipsim.node.script
        assert "__main__" in sys.modules

    def test_the_second_value_of_a_normal_draw_is_the_ranks_own(self, tmp_path):
        """numpy keeps it beside the words of its generator, which a script may set back."""
        first, second = (ScriptNamespace(tmp_path / "script.py", (), 0, rank) for rank in range(2))
        first.enter()
        np.random.standard_normal()
        before = np.random.get_state()
        np.random.standard_normal()
        second.enter()
        first.enter()
        np.random.set_state(before)
        second.enter()
        assert np.random.get_state()[3] == 0
        first.enter()
        assert np.random.get_state()[3:] == before[3:]
        first.leave()

    @pytest.mark.parametrize("as_many", [False, True], ids=["one more", "as many as before"])
    def test_a_module_that_comes_late_is_its_own(self, as_many, tmp_path, monkeypatch):
        """It is found though a switch does not look at all names, also where another one has gone meanwhile."""
        monkeypatch.setitem(sys.modules, "to_be_gone", ModuleType("to_be_gone"))
        (tmp_path / "late_beside.py").write_text("number = 0\n")
        worlds = [ScriptNamespace(tmp_path / "script.py", (), 0, rank) for rank in range(2)]
        for turn in range(3):
            for rank, world in enumerate(worlds):
                world.enter()
                if turn:
                    if as_many and turn == 1:
                        sys.modules.pop("to_be_gone", None)
                    late = importlib.import_module("late_beside")
                    assert late.number == 10 * rank + turn - 1 if turn > 1 else late.number == 0
                    late.number = 10 * rank + turn
                world.leave()
                assert "late_beside" not in sys.modules


# --- kernels that cannot go on ----------------------------------------------------------------------------------


def kernel(body: str) -> str:
    """An algorithm module whose kernel does ``body``; ``at`` is (rank, cube)."""
    return f"""
from sipsim.chips.ahbm.collectives.algorithms.intercube_allreduce import TOPO_NAME_TO_KIND, kernel_args, neighbors

def kernel(t_ptr, n_elem, cube_w, cube_h, n_sips, sip_rank, kind, w, h, tl):
    at = tl.program_id(2), tl.program_id(1)
    {body}
"""


class TestKernelsThatBreakARule:
    @pytest.mark.parametrize("seed", range(3))
    def test_the_failed_rank_is_reported_not_those_that_only_stop(self, tmp_path, seed):
        flags = ccl_file(tmp_path, kernel("if at == (3, 2):\n        tl.load(t_ptr, 10**6)\n"))
        done = run(*RING, *flags, "--no-verify-data", mail_seed=seed)
        assert (done.outcome.error.kind, done.outcome.error.rank) == ("MemoryAccessError", 3)


def without_lines(text):
    """Line numbers left out of places such as ``mine.py:7``."""
    return re.sub(r"(\.py):\d+", r"\1", text)


class TestDeadlocks:
    SKIPS = "if rank != 2:\n    dist.all_reduce(torch.ones(4, 8))"

    @pytest.mark.ideal
    def test_a_rank_that_skips_the_collective(self, tmp_path):
        done = run_worker(tmp_path, self.SKIPS)
        exit_code, kind, line = failure(done)
        assert (exit_code, kind) == (3, "IpcqDeadlock")
        assert line.startswith(
            "rank 2 has not called intercube of 32 f16 (sum), call 1 of the group of all ranks (its script has ended); "
            "ranks 0 to 1, 3 wait in it; "
        )
        assert "; 12 PEs wait and nothing can happen any more, at " in line
        report = done.outcome.error.detail.splitlines()
        assert without_lines(report[0]) == (
            "  missing: a send by rank 2 cube 3 PE 0, which waits for nothing, to rank 3 cube 3 PE 0 "
            "(its recv global_W at sipsim/chips/ahbm/collectives/algorithms/intercube_allreduce.py)"
        )
        scripts = report[: report.index("  pointers of the queue pairs with a waiting PE:")][-2:]
        assert scripts[0].startswith("  ranks 0 to 1, 3: host script waits for a collective at ")
        assert scripts[0].endswith("/script.py:6")
        assert scripts[1] == "  rank 2: its script has ended"
        name, whole, what = done.outcome.long_report
        assert name == "deadlock.txt"
        assert what == "every wait, with its queue pointers and the waits-for graph"
        assert whole.count("peer_tail_cache=") == 2 * 12
        assert whole.count(" -> ") == 12

    @pytest.mark.ideal
    def test_every_waiting_pe_is_reported_once(self, tmp_path):
        done = run_worker(tmp_path, self.SKIPS)
        error = done.outcome.error
        ends = [wait["here"] for wait in error.facts["deadlock"]["waits"]]
        places = [(end["rank"], end["cube"], end["pe"]) for end in ends]
        assert len(places) == len(set(places)) == 3 * 4
        lines = [line for line in error.detail.splitlines() if ": recv " in line or ": send " in line]
        groups = [int(found[1]) if (found := re.match(r"  (\d+) PEs ", line)) else 1 for line in lines]
        assert sum(groups) == 3 * 4
        kernel = {wait["file"].rpartition("/")[2] for wait in error.facts["deadlock"]["waits"]}
        assert kernel == {"intercube_allreduce.py"}

    @pytest.mark.parametrize("seed", range(3))
    def test_the_explanation_does_not_depend_on_the_mail(self, tmp_path, seed):
        plain = run_worker(tmp_path, self.SKIPS)
        path = str(tmp_path / "script.py")
        shuffled = run(*RING, path, mail_seed=seed)
        assert shuffled.outcome.error.message == plain.outcome.error.message
        assert shuffled.outcome.error.detail == plain.outcome.error.detail
