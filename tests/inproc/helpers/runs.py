"""Whole runs in this process: a command line and its results.

Does what ``launcher.run.run`` does around an engine, without signals, terminal and clock.
"""

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np
from msgspec import structs
from seeded import seeded_rows

from launcher import options
from launcher.engines.inproc import InProcess
from launcher.report.checks import check_recorded_io, note_verdicts
from launcher.report.files import write_logs
from launcher.report.outcome import Outcome
from launcher.result import document as result
from launcher.result import table
from launcher.run import prepare
from launcher.supervise.run import Run as PreparedRun
from sipsim.chips.ahbm.host.memory import AddressSpace, Allocation
from sipsim.core.dtypes import DTYPES
from sipsim.node.sip_node import SipNode


class Undisturbed:
    """Stop signals that never come: no signal, no timeout."""

    def reason(self) -> None:
        return None

    status_requested = False


class FreedTensors:
    """The allocation and the last elements of every tensor of a run, by address space and creation number."""

    def __init__(self) -> None:
        self._kept: dict[tuple[int, int], tuple[Allocation, np.ndarray[Any, Any]]] = {}

    def keep(self, space: AddressSpace, allocation: Allocation) -> None:
        elements = np.frombuffer(b"".join(space.read(allocation)), allocation.dtype.numpy).reshape(allocation.shape)
        self._kept[id(space), allocation.number] = allocation, elements

    def of(self, space: AddressSpace) -> "list[tuple[Allocation, np.ndarray[Any, Any]]]":
        """In order of creation, live ones included."""
        for allocation in space.live():
            self.keep(space, allocation)
        return [self._kept[key] for key in sorted(key for key in self._kept if key[0] == id(space))]

    def watch(self) -> Any:
        """A context in which freed tensors are kept."""
        free = AddressSpace._free_one

        def keep_and_free(space: AddressSpace, allocation: Allocation) -> None:
            self.keep(space, allocation)
            free(space, allocation)

        return patch.object(AddressSpace, "_free_one", keep_and_free)


class Run(NamedTuple):
    """A finished run: its result document, its SIPs as they were left, and its tensors."""

    prepared: PreparedRun
    outcome: Outcome
    document: dict[str, Any]
    members: list[SipNode]
    freed: FreedTensors

    def tensor(self, rank: int, index: int = -1) -> "np.ndarray[Any, Any]":
        """A rank's tensor at the end; the last one that was made, unless ``index`` is given."""
        return self.freed.of(self.members[rank].chip.torch.space)[index][1]

    def allocations(self, rank: int) -> list[Allocation]:
        """The placement of all tensors of a rank, in order of creation."""
        return [allocation for allocation, _ in self.freed.of(self.members[rank].chip.torch.space)]

    def table(self, verbose: bool = False) -> str:
        """The text on standard output."""
        lines: list[str] = []
        table.Table(self.prepared, lines.append, verbose).finish(self.document)
        return "\n".join(lines) + "\n"

    def results(self) -> list[tuple[str, str, int]]:
        """Results that must not depend on the mail: each rank's tensors, op log and end time."""
        ranks = [self.outcome.ranks[rank] for rank in sorted(self.outcome.ranks)]
        return [(told.tensor_sha256, told.oplog_sha256, told.sim_end_ps) for told in ranks]


def run(*argv: object, mail_seed: int | None = None, keep_oplog: bool = False) -> Run:
    """Run a command line of ``ahbm-launch``; with ``mail_seed``, with shuffled mail.

    Raises:
        ConfigError: when it would be refused.
    """
    shuffled = [] if mail_seed is None else ["--engine", "inproc", "--mail", f"shuffled:{mail_seed}"]
    words = [*shuffled, *map(str, argv)]
    chosen = options.parse(words)
    prepared = prepare.prepare(chosen)
    if keep_oplog:
        job = structs.replace(prepared.job, records=(*prepared.job.records, "records"))
        prepared = replace(prepared, job=job)
    with tempfile.TemporaryDirectory() as run_dir:
        engine = InProcess(replace(prepared, scratch_dir=run_dir), Undisturbed())
        freed = FreedTensors()
        with freed.watch():
            outcome = engine.run()
        if "data" in prepared.job.records:
            check_recorded_io(outcome, prepared.plan, run_dir)
        assert write_logs(run_dir, chosen) == []
        note_verdicts(outcome)
        outcome.note_wrong()
        outcome.note_unread(prepared.job.check_invariants)
    return Run(prepared, outcome, result.build(prepared, words, outcome), engine.members, freed)


def sums_of(done: Run) -> "np.ndarray[Any, Any]":
    """One row as the all-reduce of the seeded data must leave it: whole-number sums, wrapped where the type wraps."""
    job, system = done.prepared.job, done.prepared.plan.system
    dtype = DTYPES[job.dtype]
    shape = (system.n_cubes, job.n_elems[-1])
    contributions = system.n_sips * system.n_cubes
    total = np.zeros(shape[1], np.int64)
    for rank in range(system.n_sips):
        for row in seeded_rows(rank, shape, dtype, job.seed, contributions):
            total += row
    return total.astype(dtype.numpy)


def ccl_file(folder: Path, source: str, name: str = "mine", **keys: object) -> list[str]:
    """Write an algorithm module and the ccl file that names it; the flags that choose it."""
    module = folder / f"{name}.py"
    module.write_text(source)
    entry = {"module": str(module), "topology": "none", **keys}
    lines = ["algorithms:", f"  {name}:", *(f"    {key}: {value}" for key, value in entry.items())]
    file = folder / f"{name}.yaml"
    file.write_text("\n".join(lines) + "\n")
    return ["--ccl", str(file), "--algorithm", name]


def script_file(folder: Path, source: str, name: str = "script.py") -> str:
    """Write a host script; its path."""
    path = folder / name
    path.write_text(source)
    return str(path)
