"""Runs from Python: ``launcher.api.run`` gives the results of ``ahbm-launch`` and leaves no trace in its process.

The runs are made in the process of the tests; it is compared before and after each.
"""

import gc
import json
import os
import random
import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from launch import ALL_REDUCE, launched, script, temporary_folder

from launcher.api import RunOutcome, run
from sipsim.chips.ahbm.address import SPACES
from sipsim.chips.ahbm.pe.engine import ENGINES as COMMANDS
from sipsim.core.errors import ConfigError
from sipsim.core.registry import Registry
from sipsim.fabric.links import frames
from sipsim.records import oplog

pytestmark = pytest.mark.processes

ENGINES = ("inproc", "local")
SMALL: Any = {"sips": 2, "set": ["sip.cube_mesh.w=2", "sip.cube_mesh.h=2"]}
FLAGS = ("--sips", "2", "--set", "sip.cube_mesh.w=2", "--set", "sip.cube_mesh.h=2")


@pytest.fixture(autouse=True, scope="module")
def all_objects_are_seen() -> None:
    """``gc.get_objects`` leaves out those that are frozen (``tests/conftest.py``)."""
    gc.unfreeze()


def state(own: Path) -> dict[str, Any]:
    """All that a run could change in this process. ``own``: the folder of scripts and algorithms."""
    gc.collect()
    modules = {name: getattr(module, "__file__", None) or "" for name, module in sys.modules.items()}
    return {
        "threads": (len(os.listdir("/proc/self/task")), {thread.name for thread in threading.enumerate()}),
        "files": sorted(os.readlink(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd") if _is_open(int(fd))),
        "children": [child.pid for child in psutil.Process().children(recursive=True)],
        "temporary files": sorted(os.listdir(tempfile.gettempdir())),
        "paths": (list(sys.path), list(sys.argv), os.getcwd()),
        "modules": sorted(
            name for name, file in modules.items() if file.startswith(str(own)) or name.startswith("_ahbm")
        ),
        "definitions": _definitions(),
        "environment": dict(os.environ),
        "collector": (gc.isenabled(), gc.get_threshold()),
        "handlers": {number: signal.getsignal(number) for number in signal.valid_signals()},
        "timer": signal.getitimer(signal.ITIMER_REAL),
        "streams": (id(sys.stdout), id(sys.stderr)),
        "generators": (random.getstate(), repr(np.random.get_state())),
    }


def _definitions() -> dict[str, int]:
    """How many there are: by name, by type, kinds of packets, fields of records, spaces."""
    COMMANDS.names()
    by_name = {each._what: each for each in gc.get_objects() if isinstance(each, Registry)}
    return {
        **{what: each.names() and len(each._entries) for what, each in sorted(by_name.items())},
        "commands": len(COMMANDS._things),
        "packets": len(frames._KINDS),
        "kinds of records": len(oplog.FIELDS),
        "templates": len(oplog._TEMPLATES),
        "spaces": len(SPACES),
    }


def _is_open(fd: int) -> bool:
    """Not the descriptor by which they are listed."""
    try:
        os.fstat(fd)
    except OSError:
        return False
    return True


@pytest.fixture
def traceless(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., RunOutcome]]:
    """``run``, with the state of this process compared before and after."""

    def compared(*arguments: Any, **options: Any) -> RunOutcome:
        before = state(tmp_path)
        try:
            return run(*arguments, **options)
        finally:
            assert state(tmp_path) == before

    with temporary_folder() as temp:
        monkeypatch.setattr(tempfile, "tempdir", str(temp))
        # What a first run imports and opens for good, such as the randomness of ZeroMQ, is no trace of it.
        for engine in ENGINES:
            run(engine=engine, **SMALL)
        yield compared


LITTER = """
import gc, helper_beside, random, numpy
os.environ["LEFT"] = "behind"
os.chdir("/")
sys.path.append("/left/behind")
sys.argv.append("left")
gc.set_threshold(7)
random.seed(1)
numpy.random.seed(1)
dist.all_reduce(torch.ones(4, helper_beside.N))
"""
ENDS = {"ok": "pass", "exception": "raise ValueError('no')", "IpcqDeadlock": f"rank or {ALL_REDUCE}"}
"""Lines that end a run in this way, with a file open."""


def littering(folder: Path, end: str) -> Path:
    """A script that changes all that it can, and ends like this."""
    (folder / "helper_beside.py").write_text("N = 8\n")
    return script(folder, f"{LITTER}\nwith open(__file__):\n    {ENDS[end]}")


@pytest.mark.parametrize("engine", ENGINES)
def test_three_runs_of_a_script_with_failing_ones_between(engine, tmp_path, traceless):
    expected = launched(*FLAGS, littering(tmp_path, "ok")).digest
    for end in ("ok", "exception", "ok", "IpcqDeadlock", "ok"):
        outcome = traceless(littering(tmp_path, end), engine=engine, **SMALL)
        kind = outcome.error and outcome.error["kind"]
        assert (kind, outcome.digest) == ((None, expected) if end == "ok" else (end, None)), outcome.output


ALGORITHM = """
import helper_beside, numpy, random
from sipsim.chips.ahbm.collectives.algorithms.intercube_allreduce import *
random.seed(1), numpy.random.seed(1)
"""


@pytest.mark.parametrize("engine", ENGINES)
def test_three_runs_of_an_algorithm_beside_its_config(engine, tmp_path, traceless):
    (tmp_path / "helper_beside.py").write_text("")
    (tmp_path / "mine.py").write_text(ALGORITHM)
    ccl = tmp_path / "ccl.yaml"
    ccl.write_text("algorithms: {mine: {module: mine.py, topology: none, root_cube: null}}\n")
    expected = launched(*FLAGS, "--ccl", ccl, "--algorithm", "mine").digest
    for _ in range(3):
        outcome = traceless(engine=engine, ccl=ccl, algorithm="mine", **SMALL)
        assert (outcome.status, outcome.digest, outcome.runs[0]["wrong"]) == ("ok", expected, 0)


COMMAND = """
from typing import NamedTuple
from sipsim.chips.ahbm.collectives.algorithms import intercube_allreduce as base
from sipsim.chips.ahbm.collectives.algorithms.intercube_allreduce import *
from sipsim.chips.ahbm.pe.engine import CommandEngine, engine_for
from sipsim.records.oplog import record_kind

NOP = record_kind("nop", FIELD)

class Nop(NamedTuple):
    why: str

@engine_for(Nop)
class NopEngine(CommandEngine):
    def take(self, command):
        completion = self._begin(command)
        self._end(completion, NOP, command.why)
        return completion

def kernel(*args):
    args[-1]._submit(Nop("to see"))
    base.kernel(*args)
"""
IMPORTED = "from with_command import *\n"


@pytest.mark.parametrize("engine", ENGINES)
def test_runs_of_algorithms_with_a_command_of_their_own(engine, tmp_path, traceless):
    """In the algorithm's file, or in a module that it imports; the fields of its record change from run to run."""
    ccl, digests = tmp_path / "ccl.yaml", []
    ccl.write_text("algorithms: {mine: {module: mine.py, topology: none, root_cube: null}}\n")
    for field in ("why", "cause", "why"):
        text = COMMAND.replace("FIELD", repr(field))
        for of_file in (text, IMPORTED):
            (tmp_path / "with_command.py").write_text(text)
            (tmp_path / "mine.py").write_text(of_file)
            outcome = traceless(engine=engine, ccl=ccl, algorithm="mine", **SMALL)
            assert (outcome.status, outcome.runs and outcome.runs[0]["wrong"]) == ("ok", 0), outcome.output
            digests.append(outcome.ranks[0]["oplog_sha256"])
    assert digests[0] == digests[1] == digests[4] == digests[5] != digests[2] == digests[3]


RING_CHIP = Path(__file__).resolve().parents[1] / "inproc/helpers/lab/ring_chip.py"
CHIP_PARAMS = "system.chip_params={'cores':3,'hop_ns':2,'service_ns':5}"
RING_SCRIPT = """
import {package}.helper
from {package} import own, ring_chip
{package}.ring_chip.TOKEN_BYTES

def worker(rank, world_size, chip):
    assert own.CALLS == [] and {package}.own is own
    own.CALLS.append(rank)
    chip.send(1 - rank, 0, rank)
    try:
        assert chip.recv() == 1 - rank
        {package}.helper.refuse()
    except ring_chip.helper.Refusal:
        assert {package}.own.CALLS == [rank]
"""


def ring_beside(folder: Path, package: str) -> Path:
    """A script beside the package of its chip, with a module that the chip has imported and one of the script's own."""
    (folder / package).mkdir(exist_ok=True)
    source = RING_CHIP.read_text().replace("Token", f"{package.capitalize()}Token").replace("tag=100", "tag=101")
    (folder / package / "ring_chip.py").write_text(f"{source}\nfrom {package} import helper\n")
    (folder / package / "own.py").write_text("CALLS = []\n")
    helper = "class Refusal(Exception): pass\ndef refuse(): raise Refusal\n"
    (folder / package / "helper.py").write_text(helper)
    path = folder / f"{package}_script.py"
    path.write_text(RING_SCRIPT.format(package=package))
    return path


@pytest.mark.parametrize("engine", ENGINES)
def test_runs_of_scripts_beside_the_modules_of_their_chips(engine, tmp_path, monkeypatch, traceless):
    """Two chips with payloads of one tag, in turn. What a registry has imported is one module for all ranks."""
    monkeypatch.syspath_prepend(tmp_path)
    for package in ("rings", "coins", "rings"):
        chip = f"system.chip={package}.ring_chip"
        outcome = traceless(ring_beside(tmp_path, package), engine=engine, sips=2, set=[chip, CHIP_PARAMS])
        assert outcome.status == "ok", outcome.output


def test_a_refused_run_leaves_nothing_and_starts_nothing(tmp_path, traceless):
    with pytest.raises(ConfigError, match="no such file"):
        traceless(tmp_path / "none.py", ccl=None, **SMALL)
    with pytest.raises(ConfigError, match="unknown topology 'rign_1d'; did you mean 'ring_1d'"):
        traceless(topology="rign_1d", json=tmp_path / "out.json", **SMALL)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("engine", ENGINES)
def test_outside_the_main_thread(engine, tmp_path, traceless):
    outcomes: list[RunOutcome] = []
    expected = traceless(engine=engine, **SMALL)
    before = state(tmp_path)
    thread = threading.Thread(target=lambda: outcomes.append(run(engine=engine, timeout=600, **SMALL)))
    thread.start()
    thread.join()
    assert state(tmp_path) == before
    assert [outcome.digest for outcome in outcomes] == [expected.digest]


SIGNALS = {
    "inproc": "os.kill(os.getpid(), {signum})",
    "local": "os.kill(int(open(f'/proc/{{os.getppid()}}/stat').read().split()[3]), {signum})",
}
"""By the script, to the process that makes the run."""


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_the_run_and_reaches_the_handler_that_was_there(engine, signum, tmp_path, traceless):
    handled: list[int] = []
    before = signal.signal(signum, lambda number, _: handled.append(number))
    path = script(tmp_path, f"rank or {SIGNALS[engine].format(signum=int(signum))}\nwhile True: {ALL_REDUCE}")
    try:
        outcome = traceless(path, engine=engine, json=tmp_path / "out.json", **SMALL)
    finally:
        signal.signal(signum, before)
    assert (handled, outcome.status, outcome.exit_code) == ([signum], "interrupted", 128 + signum)
    assert json.loads((tmp_path / "out.json").read_text()) == json.loads(json.dumps(outcome.document))


def test_nothing_is_printed_and_what_was_told_is_kept(tmp_path, traceless, capfd):
    path = script(tmp_path, "print('words', rank)\nraise ValueError('no')")
    for engine, words in (("local", "[rank 1] words 1\n"), ("inproc", "words 0\n")):
        outcome = traceless(path, engine=engine, **SMALL)
        assert words in outcome.output
        assert "ahbm-launch: exception: ValueError: no" in outcome.output
        assert "Traceback" in outcome.output
    assert capfd.readouterr() == ("", "")


def test_one_run_at_a_time(tmp_path, traceless):
    path = script(tmp_path, "from launcher.api import run\nrun()")
    for engine in ENGINES:
        outcome = traceless(path, engine=engine, **SMALL)
        assert outcome.error is not None
        assert "another run is under way in this process" in outcome.error["message"]


def test_a_module_of_the_program_stays_its_own(tmp_path, monkeypatch, traceless):
    """Also where the script imports it too, from beside itself."""
    path = littering(tmp_path, "ok")
    monkeypatch.syspath_prepend(tmp_path)
    import helper_beside  # type: ignore[import-not-found]

    for engine in ENGINES:
        assert traceless(path, engine=engine, **SMALL).status == "ok"
        assert sys.modules["helper_beside"] is helper_beside
    del sys.modules["helper_beside"]
