"""Test kit for kernels, collectives and commands; uses only ``launcher.api``, the commands and the op log.

:func:`simulate` runs kernels in this process and returns their results. :func:`expect_ps` returns the time of a
transfer predicted by ``ahbm-probe``. :func:`launched` runs a command as a process. :func:`session` runs the commands of
a transcript. A place is (SIP, cube, PE).
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
from typing import Any, Literal, NamedTuple

import numpy as np

from ahbm_sim import MAINS
from launcher.api import run
from sipsim.chips.ahbm.host.layout import DPPolicy
from sipsim.core.errors import ConfigError

Place = tuple[int, int, int]
Kernel = Callable[..., object]
"""``kernel(tl)``, or ``kernel(pointer, tl)`` with a pointer to the row of ``data`` of the kernel's place."""
Array = np.ndarray[Any, Any]

MODULE = "ahbm_sim_testing_wiring.py"
"""File name of the module that wires the kernels. It contains no folder, since the name enters the digest."""
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
    """A record of the op log. Times are in ps. ``fields``: further fields by name; whole numbers as ints."""

    kind: str
    place: Place
    start_ps: int
    end_ps: int
    fields: dict[str, Any]


class Done(NamedTuple):
    """The outcome of a run in this process.

    ``error``: ``kind``, ``message`` and more, as in the result file; None without an error. ``values``: the return
    value of each kernel that has ended. ``data``: the given rows after the run. ``log``: the op log in causal order.
    ``document``: the document of ``--json``; empty if the run was refused. ``output``: the text that the command prints
    in addition to the table.
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
        """SHA-256 of the simulation's results; None unless every rank ran to its end."""
        return self.document.get("digest")

    def __repr__(self) -> str:
        return f"Done(exit_code={self.exit_code}, error={self.error}, values={self.values})"

    @property
    def kind(self) -> str | None:
        """The kind of the error; None without an error."""
        return None if self.error is None else str(self.error["kind"])

    def ops(self, kind: str, at: Place | None = None) -> list[Op]:
        """Return the records of a kind, at one place or at all places."""
        return [op for op in self.log if op.kind == kind and at in (None, op.place)]

    def op(self, kind: str, at: Place | None = None) -> Op:
        """Return the only record of a kind; raise AssertionError if there is none, or several."""
        found = self.ops(kind, at)
        there = ", ".join(sorted({op.kind for op in self.log if at in (None, op.place)}))
        assert len(found) == 1, f"{len(found)} records of {kind}, not one; kinds in this log: {there or 'none'}"
        return found[0]


class Exit(NamedTuple):
    """The outcome of a command. ``document``: of ``--json``; empty if there is none, or if you named its file."""

    exit_code: int
    stdout: str
    stderr: str
    document: dict[str, Any]


class _System:
    """The kernels and rows of a simulation. The script of the run stores the kernels' results and final rows here."""

    def __init__(self, kernels: Mapping[Place, Kernel], data: Mapping[Place, Any], dtype: str, cubes: int, pes: int):
        self.kernels = dict(kernels)
        self.given = {place: np.asarray(row) for place, row in data.items()}
        self.dtype, self.n_cubes, self.n_pes = dtype, cubes, pes
        self.values: dict[Place, Any] = {}
        self.data: dict[Place, Array] = {}

    def rank(self, place: Place) -> int:
        """Return the index of a PE among all PEs of the system, from 0."""
        return (place[0] * self.n_cubes + place[1]) * self.n_pes + place[2]

    def work(self, rank: int, torch: Any) -> None:
        """Run the script of SIP ``rank``: write the rows, launch all kernels together, read the rows."""
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
            final = tensor.numpy()
            for place, row in self.given.items():
                if place[0] == rank:
                    self.data[place] = final[place[1] * self.n_pes + place[2]][: len(row)].copy()

    def _start(self, *args: Any) -> None:
        *pointers, length, tl = args
        place = tl.program_id(2), tl.program_id(1), tl.program_id(0)
        kernel = self.kernels.get(place)
        if kernel is None:
            return
        own: list[Any] = []
        if pointers and _takes_pointer(kernel):
            own = [pointers[0] + (place[1] * self.n_pes + place[2]) * length * pointers[0].dtype.itemsize]
        self.values[place] = kernel(*own, tl)


def _takes_pointer(kernel: Kernel) -> bool:
    needed = [each for each in inspect.signature(kernel).parameters.values() if each.default is each.empty]
    return len(needed) > 1


_under_way: list[_System] = []
"""The systems of running simulations; the script of a simulation reads the last element."""


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
    """Run a kernel on each place, with the engine ``inproc``. All kernels are launched at the same time.

    An error of the run is not raised, but returned in :class:`Done`.

    ``wires``: the neighbour of a place in a direction; by default, the places of ``kernels``, in order, form a row
    with neighbours ``E`` and ``W``. ``data``: a row of numbers in the HBM of a place, stored as ``dtype``. ``cubes``:
    width and height of a SIP's mesh; ``pes``: PEs per cube. ``set``: config values by key path. ``mail``: the seed of
    shuffled mail. ``flags``: further keywords of ``launcher.api.run``.

    Raises:
        ValueError: for a place that the system does not have.
    """
    system = _System(kernels, data or {}, dtype, cubes[0] * cubes[1], pes)
    joined = _row([*kernels]) if wires is None else wires
    _check_places([*kernels, *(data or {}), *(each for each, _ in joined), *joined.values()], sips, system)
    table: dict[int, dict[str, int]] = {}
    for (place, direction), neighbour in joined.items():
        table.setdefault(system.rank(place), {})[direction] = system.rank(neighbour)
    seed = None if mail is None else f"shuffled:{mail}"
    with tempfile.TemporaryDirectory() as folder:
        wiring, ccl, script, oplog = (Path(folder, name) for name in (MODULE, "ccl.yaml", "script.py", "oplog"))
        wiring.write_text(WIRING.format(table=table))
        entry = {"module": MODULE, "topology": "none", "rank_per": "pe"}
        ccl.write_text(json.dumps({"defaults": {"algorithm": "kit"}, "algorithms": {"kit": entry}}))
        script.write_text(SCRIPT)
        _under_way.append(system)
        try:
            settings = _settings(cubes, pes, set)
            outcome = run(script, engine="inproc", mail=seed, sips=sips, ccl=ccl, set=settings, oplog=oplog, **flags)
        except ConfigError as error:
            return Done(error.exit_code, {"kind": error.kind, "message": str(error)}, {}, {}, (), {}, "")
        finally:
            _under_way.pop()
        log = tuple(_ops(oplog.read_text().splitlines())) if oplog.exists() else ()
    ran = outcome.exit_code, outcome.error, system.values, system.data, log, outcome.document, outcome.output
    return Done(*ran)


def _check_places(places: Iterable[Place], sips: int, system: _System) -> None:
    sizes = sips, system.n_cubes, system.n_pes
    for place in places:
        if len(place) != len(sizes) or not all(0 <= number < size for number, size in zip(place, sizes, strict=True)):
            there = ", ".join(
                f"{what} 0 to {size - 1}" for what, size in zip(("SIPs", "cubes", "PEs"), sizes, strict=True)
            )
            raise ValueError(f"{place}: the system has {there}; name a place in it, (SIP, cube, PE), or make it larger")


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
    what: Literal["pair", "raw_dma"] = "pair",
    parts: Sequence[str] | None = None,
    cubes: tuple[int, int] = (2, 1),
    pes: int = 1,
    set: Mapping[str, object] | None = None,
    **flags: object,
) -> int:
    """Return the time of a transfer of ``nbytes`` predicted by ``ahbm-probe``, in ps.

    ``what``: ``pair`` (``tl.send`` to the end of ``tl.recv``) or ``raw_dma``. ``parts``: count only terms of these
    parts or kinds, such as ``["data"]`` or ``["drain", "wires"]``. ``cubes``, ``pes`` and ``set``: as for
    :func:`simulate`. ``flags``: further flags of the command, such as ``sips``.

    Raises:
        AssertionError: when the command fails, with its message, or a part has no term. A part that takes no time
            has no term.
    """
    places = [f"--{name}={'.'.join(map(str, place))}" for name, place in (("from", src), ("to", dst))]
    words = [*places, f"--bytes={nbytes}", "--json=-"]
    words += [f"--set={setting}" for setting in _settings(cubes, pes, set)]
    words += [f"--{name.replace('_', '-')}={value}" for name, value in flags.items()]
    code, stdout, stderr = _run_command("ahbm-probe", words)
    assert code == 0, stderr
    terms = json.loads(stdout)[what]["terms"]
    known = {term[key] for term in terms for key in ("part", "kind")}
    missing = {*(parts or ())} - known
    assert not missing, f"no term is of {', '.join(sorted(missing))}; this {what} has {', '.join(sorted(known))}"
    return sum(term["ps"] for term in terms if parts is None or {term["part"], term["kind"]} & {*parts})


def launched(
    *args: object, command: str = "ahbm-launch", cwd: Path | None = None, timeout_s: float = 120, **environ: str
) -> Exit:
    """Run a command with ``args`` as a separate process, and wait for it. ``environ``: environment variables to add.

    Without ``--json`` in ``args``, the result is written to a temporary file and returned in :attr:`Exit.document`.

    Raises:
        subprocess.TimeoutExpired: when the command has not ended after ``timeout_s``; it is then killed.
    """
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
    """Run the commands of a transcript in this process, and return the transcript with their present output.

    The return value equals ``text`` if the output has not changed. The command of a line ``$ COMMAND`` runs in
    ``folder``. The lines below it are replaced: standard output after ``| ``, standard error after ``! ``, and the exit
    code after ``= `` unless it is 0. Lines with four spaces below ``@ FILE`` are written to that file in ``folder``.
    All other lines stay. In the output, ``FOLDER`` replaces the path of ``folder``.
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
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text("")
        elif line.startswith("$ "):
            name, *words = shlex.split(line[2:])
            with chdir(folder):
                code, stdout, stderr = _run_command(name, words)
            for mark, output in (("|", stdout), ("!", stderr)):
                out += [f"{mark} {each}".rstrip() for each in output.replace(str(folder), "FOLDER").splitlines()]
            out += [f"= {code}"] if code else []
    return "\n".join(out) + "\n"


def _run_command(name: str, words: list[str]) -> tuple[int, str, str]:
    """Run a command in this process; return its exit code, standard output and standard error."""
    stdout, stderr = io.StringIO(), io.StringIO()
    module, function = MAINS[name]
    main = getattr(importlib.import_module(module), function)
    with redirect_stdout(stdout), redirect_stderr(stderr):
        code = main(words)
    return code, stdout.getvalue(), stderr.getvalue()
