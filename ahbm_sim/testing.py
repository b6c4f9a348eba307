"""A test kit for kernels, collectives and commands: runs small systems in this process, and commands in others.

``simulate`` runs a kernel on each place that it is given and returns what came out; ``expect_ps`` is what a transfer
costs by ``ahbm-probe``; ``launched`` is a command as a process; ``session`` plays commands and writes what they say.
The kit stands on ``launcher.api``, the commands and the op log alone. A place is (SIP, cube, PE).
"""

import importlib
import inspect
import io
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import chdir, redirect_stderr, redirect_stdout
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from launcher.api import run
from sipsim.errors import ConfigError
from sipsim.host.dp_policy import DPPolicy

Place = tuple[int, int, int]
Kernel = Callable[..., object]
"""``kernel(tl)``, or ``kernel(pointer, tl)`` with a pointer to its place's row of ``data``."""
Array = np.ndarray[Any, Any]

MODULE = "ahbm_sim_testing_wiring.py"
"""A name without a folder, since it is in the digest."""
WIRING = """
def kernel(tl): pass
def kernel_args(world_size, n_elem): return ()
def neighbors(rank, world_size, neighbor_map): return {table}.get(rank, {{}})
"""
SCRIPT = """
from ahbm_sim.testing import _under_way
def worker(rank, world_size, torch): _under_way[-1].work(rank, torch)
"""


class Op(NamedTuple):
    """A line of the op log. Times in ps; ``fields`` by name, whole numbers as ints."""

    kind: str
    place: Place
    start_ps: int
    end_ps: int
    fields: dict[str, Any]


class Done(NamedTuple):
    """What came out of a run in this process.

    ``error``: ``kind``, ``message`` and more; None without one. ``values``: what each kernel that has ended returned.
    ``data``: at the end, the rows that were given. ``log``: the op log in causal order. ``document``: the result, as
    ``--json`` writes it; empty if the run was refused. ``output``: what the command would print besides the table.
    """

    exit_code: int
    error: dict[str, Any] | None
    values: dict[Place, Any]
    data: dict[Place, Array]
    log: tuple[Op, ...]
    document: dict[str, Any]
    output: str

    @property
    def digest(self) -> str | None:
        """SHA-256 over what was simulated; None unless every rank ran to its end."""
        return self.document.get("digest")

    @property
    def kind(self) -> str | None:
        """The kind of the error; None without one."""
        return None if self.error is None else str(self.error["kind"])

    def ops(self, kind: str, at: Place | None = None) -> list[Op]:
        """The lines of a kind, at one place or at all."""
        return [op for op in self.log if op.kind == kind and at in (None, op.place)]

    def op(self, kind: str, at: Place | None = None) -> Op:
        """The one line of a kind; an AssertionError when there are none or several."""
        found = self.ops(kind, at)
        assert len(found) == 1, f"{len(found)} lines of {kind}, not one"
        return found[0]


class Exit(NamedTuple):
    """A command that has ended. ``document``: what ``--json FILE`` wrote; empty without one."""

    exit_code: int
    stdout: str
    stderr: str
    document: dict[str, Any]


class _System:
    """The kernels of the simulation that is under way, which its script finds here, and what they leave."""

    def __init__(self, kernels: Mapping[Place, Kernel], data: Mapping[Place, Any], dtype: str, cubes: int, pes: int):
        self.kernels = dict(kernels)
        self.given = {place: np.asarray(row) for place, row in data.items()}
        self.dtype, self.n_cubes, self.n_pes = dtype, cubes, pes
        self.values: dict[Place, Any] = {}
        self.data: dict[Place, Array] = {}

    def rank(self, place: Place) -> int:
        """The number of a PE among all of the system."""
        return (place[0] * self.n_cubes + place[1]) * self.n_pes + place[2]

    def work(self, rank: int, torch: Any) -> None:
        """The script of a SIP: its data, one launch of all its kernels, its data again."""
        tensor, length = None, max((len(row) for row in self.given.values()), default=0)
        if length:
            rows = np.zeros((self.n_cubes * self.n_pes, length), np.float64)
            for (sip, cube, pe), row in self.given.items():
                if sip == rank:
                    rows[cube * self.n_pes + pe, : len(row)] = row
            policy = DPPolicy("row_wise", "row_wise", self.n_cubes, self.n_pes)
            tensor = torch.zeros(rows.shape, dtype=self.dtype, dp=policy)
            tensor.copy_(torch.from_numpy(rows))
        if places := [place for place in self.kernels if place[0] == rank]:
            cubes, pes = (sorted({place[axis] for place in places}) for axis in (1, 2))
            torch.launch(self._start, *([] if tensor is None else [tensor]), length, cubes=cubes, pes=pes)
        if tensor is not None:
            left = tensor.numpy()
            for place, row in self.given.items():
                if place[0] == rank:
                    self.data[place] = left[place[1] * self.n_pes + place[2]][: len(row)].copy()

    def _start(self, *args: Any) -> None:
        *pointers, length, tl = args
        place = tl.program_id(2), tl.program_id(1), tl.program_id(0)
        kernel = self.kernels.get(place)
        if kernel is None:
            return
        own: list[Any] = []
        if pointers and len(inspect.signature(kernel).parameters) > 1:
            own = [pointers[0] + (place[1] * self.n_pes + place[2]) * length * pointers[0].dtype.itemsize]
        self.values[place] = kernel(*own, tl)


_under_way: list[_System] = []


def simulate(
    kernels: Mapping[Place, Kernel],
    *,
    wires: Mapping[tuple[Place, str], Place] | None = None,
    data: Mapping[Place, Any] | None = None,
    dtype: str = "f32",
    sips: int = 1,
    cubes: tuple[int, int] = (2, 1),
    pes: int = 1,
    set: Mapping[str, object] | None = None,
    mail: int | None = None,
    **flags: Any,
) -> Done:
    """Run a kernel on each place, all launched at the same time. Raises nothing that the run does: see :class:`Done`.

    ``wires``: the neighbour of a place in a direction; by default each place has the next of ``kernels`` to its ``E``,
    and that has it to its ``W``. ``data``: a row of numbers in the HBM of a place, kept as ``dtype``. ``cubes``: width
    and height of a SIP's mesh; ``pes``: PEs a cube. ``set``: config values by key path. ``mail``: the seed of shuffled
    mail. ``flags``: further keywords of ``launcher.api.run``.
    """
    system = _System(kernels, data or {}, dtype, cubes[0] * cubes[1], pes)
    table: dict[int, dict[str, int]] = {}
    for (place, direction), neighbour in (_row([*kernels]) if wires is None else wires).items():
        table.setdefault(system.rank(place), {})[direction] = system.rank(neighbour)
    flags = {"engine": "inproc", "mail": None if mail is None else f"shuffled:{mail}", **flags}
    with tempfile.TemporaryDirectory() as folder:
        wiring, ccl, script, oplog = (Path(folder, name) for name in (MODULE, "ccl.yaml", "script.py", "oplog"))
        wiring.write_text(WIRING.format(table=table))
        entry = {"module": MODULE, "topology": "none", "rank_per": "pe"}
        ccl.write_text(json.dumps({"defaults": {"algorithm": "kit"}, "algorithms": {"kit": entry}}))
        script.write_text(SCRIPT)
        _under_way.append(system)
        try:
            settings = _settings(cubes, pes, set)
            outcome = run(script, sips=sips, ccl=ccl, set=settings, oplog=oplog, **flags)
        except ConfigError as error:
            return Done(error.exit_code, {"kind": error.kind, "message": str(error)}, {}, {}, (), {}, "")
        finally:
            _under_way.pop()
        log = tuple(_ops(oplog.read_text().splitlines())) if oplog.exists() else ()
    ran = outcome.exit_code, outcome.error, system.values, system.data, log, outcome.document, outcome.output
    return Done(*ran)


def _settings(cubes: tuple[int, int], pes: int, more: Mapping[str, object] | None) -> list[str]:
    mesh = {"sip.cube_mesh": {"w": cubes[0], "h": cubes[1]}, "cube.pes": pes}
    return [f"{key}={json.dumps(value)}" for key, value in {**mesh, **(more or {})}.items()]


def _row(places: Sequence[Place]) -> dict[tuple[Place, str], Place]:
    pairs = [*pairwise(places)]
    return {(a, "E"): b for a, b in pairs} | {(b, "W"): a for a, b in pairs}


def _ops(lines: Iterable[str]) -> Iterable[Op]:
    for line in lines:
        rank, kind, start, end, cube, pe, *_ = line.split(" ")
        fields = {name: int(text) if text.isdigit() else text for name, text in re.findall(r" (\w+)=(\S*)", line)}
        yield Op(kind, (int(rank), int(cube), int(pe)), int(start), int(end), fields)


def expect_ps(
    src: Place,
    dst: Place,
    nbytes: int,
    what: str = "pair",
    parts: Sequence[str] | None = None,
    cubes: tuple[int, int] = (2, 1),
    pes: int = 1,
    set: Mapping[str, object] | None = None,
    **flags: object,
) -> int:
    """The price of a transfer of ``nbytes`` by ``ahbm-probe``, in ps; an AssertionError if the command refuses.

    ``what``: ``pair`` (``tl.send`` to the end of ``tl.recv``) or ``raw_dma``. ``parts``: only terms of these parts or
    kinds, such as ``["data"]`` or ``["drain", "wire"]``. The system is that of :func:`simulate`; ``flags`` are further
    ones of the command, such as ``sips``.
    """
    places = [f"--{name}={'.'.join(map(str, place))}" for name, place in (("from", src), ("to", dst))]
    words = [*places, f"--bytes={nbytes}", "--json=-"]
    words += [f"--set={setting}" for setting in _settings(cubes, pes, set)]
    words += [f"--{name.replace('_', '-')}={value}" for name, value in flags.items()]
    code, stdout, stderr = _said("ahbm-probe", words)
    assert code == 0, stderr
    terms = json.loads(stdout)[what]["terms"]
    return sum(term["ps"] for term in terms if parts is None or {term["part"], term["kind"]} & {*parts})


def launched(
    *args: object, command: str = "ahbm-launch", cwd: Path | None = None, timeout_s: float = 120, **environ: str
) -> Exit:
    """Run a command as a process of its own, and wait for it. ``environ``: added to its environment."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "document.json")
        words = [str(arg) for arg in args]
        start = f"import sys, ahbm_sim; sys.exit(ahbm_sim.{command.removeprefix('ahbm-')}())"
        path = os.pathsep.join(filter(None, [str(Path(__file__).resolve().parents[1]), os.environ.get("PYTHONPATH")]))
        json_flag = [] if any(word.startswith("--json") for word in words) else [f"--json={file}"]
        done = subprocess.run(
            [sys.executable, "-c", start, *json_flag, *words],
            cwd=cwd,
            env={**os.environ, "PYTHONPATH": path, **environ},
            capture_output=True,
            text=True,
            timeout=timeout_s,
        )
        document = json.loads(file.read_text()) if file.exists() else {}
    return Exit(done.returncode, done.stdout, done.stderr, document)


def session(text: str, folder: Path) -> str:
    """Play a transcript in this process and return it as it should be: equal to ``text`` if the commands still say so.

    A line ``$ COMMAND`` is played in ``folder``; behind it stand its standard output (lines after ``| ``), its standard
    error (``! ``) and, unless it is 0, its exit code (``= ``), which are written anew. Lines with four spaces below
    ``@ FILE`` are that file, which is written first. All other lines stay.
    """
    out: list[str] = []
    file: Path | None = None
    for line in text.splitlines():
        if line.startswith(("| ", "! ", "= ")) or line in ("|", "!"):
            continue
        out.append(line)
        if file is not None and (line.startswith("    ") or not line):
            with file.open("a") as opened:
                opened.write(f"{line[4:]}\n")
            continue
        file = None
        if line.startswith("@ "):
            file = folder / line[2:].strip()
            file.write_text("")
        elif line.startswith("$ "):
            name, *words = shlex.split(line[2:])
            with chdir(folder):
                code, stdout, stderr = _said(name, words)
            for mark, said in (("|", stdout), ("!", stderr)):
                out += [f"{mark} {each}".rstrip() for each in said.replace(str(folder), "FOLDER").splitlines()]
            out += [f"= {code}"] if code else []
    return "\n".join(out) + "\n"


def _said(name: str, words: list[str]) -> tuple[int, str, str]:
    """The exit code, standard output and standard error of a command, run in this process."""
    stdout, stderr = io.StringIO(), io.StringIO()
    main = importlib.import_module(f"launcher.cli.{name.removeprefix('ahbm-')}").main
    with redirect_stdout(stdout), redirect_stderr(stderr):
        code = main(words)
    return code, stdout.getvalue(), stderr.getvalue()
