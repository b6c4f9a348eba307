"""Checks the collectives of a host script: every rank's recorded input and output, against NumPy in the same order."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np

from launcher.report.outcome.finished import FinishedRun
from launcher.report.outcome.outcome import Outcome, RunError
from sipsim.chips.api.run_plan.base import RunPlan
from sipsim.collectives.call.base import COLLECTIVES
from sipsim.collectives.testdata import NONE_WRONG, Mismatch, compare
from sipsim.core.dtypes import DTYPES, DType
from sipsim.core.errors import CollectiveMismatch, error_text, pass_on_halt
from sipsim.core.files.files import reader
from sipsim.records.artifacts import RECORDED_IO, rank_folder
from sipsim.records.job import RankOutcome, RunRecord

Array = np.ndarray[tuple[int, ...], np.dtype[np.generic]]


class BadRecording(ValueError):
    """A recorded file of a rank that cannot be checked."""

    def __init__(self, what: str, rank: int) -> None:
        super().__init__(what)
        self.rank = rank


def check_recorded_io(outcome: Outcome, plan: RunPlan, folder: str) -> None:
    """Fill in ``wrong`` of every run that all ranks of its group completed and whose results are known here.

    What a collective leaves in a group is known from its algorithm's schedule; of others, what one with operators
    leaves is known to the algorithm's ``reference``, and one without knows its own results.
    ``folder``: what holds the artifact folders of all ranks.

    When ranks disagree on their collectives nothing is compared.
    """
    disagree = outcome.error is not None and outcome.error.kind == CollectiveMismatch.kind
    if not outcome.complete or disagree:
        return
    known = [(run, results) for run in outcome.finished_runs() if (results := _results_of(run.records[0], plan))]
    for run, results in known:
        for index, (rank, number) in enumerate(zip(run.ranks, run.runs, strict=True)):
            needed = zip(("in", "out"), results.files(index), strict=True)
            if not all(_path(folder, number, rank, when).is_file() for when, is_needed in needed if is_needed):
                what = f"the recorded data of rank {rank} have not arrived from its host"
                outcome.fail(RunError("agent_failed", rank, f"{what}; run again, or with --no-verify-data"))
                return
    try:
        for run, results in known:
            if not _compare_all(outcome, run, results, folder):
                return
    except BadRecording as error:
        outcome.fail(RunError("agent_failed", error.rank, f"{error}; run again, or with --no-verify-data"))


class _Results(NamedTuple):
    """``compute(inputs)``: every rank's result from every rank's source, flat if ``is_flat``. ``whose``: the function,
    for messages. ``files(index)``: whether a rank of the group has recorded its source, and its result.
    """

    whose: str
    compute: Callable[[list[Any]], Any]
    files: Callable[[int], tuple[bool, bool]] = lambda _index: (True, True)
    is_flat: bool = False


def _results_of(run: RunRecord, plan: RunPlan) -> _Results | None:
    """None when they are not known here: no ``reference``, or a module's collective that is not loaded here."""
    if run.workers:
        whose = f"algorithm {run.algorithm}: its schedule"
        return _Results(whose, partial(plan.group_results, run), partial(plan.has_tensors, run), is_flat=True)
    collective = COLLECTIVES.loaded(run.collective)
    if collective is None:
        return None
    if not collective.ops:
        whose = f"collective {run.collective}: its results"
        return _Results(whose, lambda inputs: collective.results(inputs, run.values))
    reference = plan.reference
    if reference is None:
        return None
    return _Results(f"algorithm {run.algorithm}: its reference", lambda inputs: reference(inputs, plan.system))


def _compare_all(outcome: Outcome, run: FinishedRun, results: _Results, folder: str) -> bool:
    """Whether the results could be computed; if not, the run has failed."""
    dtype = DTYPES[run.records[0].dtype]
    numbers = list(zip(run.ranks, run.runs, strict=True))
    inputs = [
        _flat_or_none(folder, number, rank, "in", dtype)
        if results.is_flat
        else _elements(load(folder, number, rank, "in"), dtype)
        for rank, number in numbers
    ]
    try:
        expected = results.compute(inputs)
    except BaseException as error:
        pass_on_halt(error)
        outcome.fail(RunError("exception", None, f"{results.whose}() raised {error_text(error)}"))
        return False
    for index, ((rank, number), record) in enumerate(zip(numbers, run.records, strict=True)):
        try:
            wrong = _compare(folder, number, rank, expected[index], dtype)
        except BadRecording:
            raise
        except (ValueError, TypeError) as error:
            raise BadRecording(f"the data of rank {rank} cannot be checked: {error}", rank) from None
        outcome.ranks[rank] = _with_wrong(outcome.ranks[rank], record, wrong)
    return True


def _flat_or_none(folder: str, number: int, rank: int, when: str, dtype: DType) -> Array | None:
    """The recorded elements in order; None where there is no such tensor."""
    if not _path(folder, number, rank, when).is_file():
        return None
    return _elements(load(folder, number, rank, when), dtype).reshape(-1)


def _compare(folder: str, number: int, rank: int, expected: Array | None, dtype: DType) -> Mismatch:
    """None: that rank's result may be anything."""
    if expected is None:
        return NONE_WRONG
    return compare(_elements(load(folder, number, rank, "out"), dtype), expected)


def _elements(stored: Array, dtype: DType) -> Array:
    """What was stored in another type of the same bits."""
    return stored.view(dtype.numpy) if stored.dtype == dtype.stored else stored


def _path(folder: str, number: int, rank: int, when: str) -> Path:
    return Path(rank_folder(folder, rank), RECORDED_IO, f"{number}-{rank}-{when}.npy")


def load(folder: str, number: int, rank: int, when: str) -> Array:
    """The recorded ``in`` or ``out`` of one of a rank's runs.

    Raises:
        BadRecording: when it is no array of numbers, or incomplete.
    """
    path = _path(folder, number, rank, when)
    try:
        with reader(path) as file:
            # Mapped, so that a header with a wrong size takes no memory; nothing is unpickled.
            mapped = np.lib.format.open_memmap(f"/proc/self/fd/{file.fileno()}", mode="r")
        if mapped.dtype.kind not in "biuf":
            raise ValueError(f"its elements are {mapped.dtype}")
        return np.array(mapped)
    except Exception as error:
        # NumPy parses the header as Python source, which may raise anything.
        raise BadRecording(f"the recorded data of rank {rank} cannot be read: {path.name}: {error}", rank) from None


def _with_wrong(rank: RankOutcome, record: RunRecord, wrong: Mismatch) -> RankOutcome:
    checked = msgspec.structs.replace(record, wrong=wrong.elements, first_wrong=wrong.first)
    runs = tuple(checked if each is record else each for each in rank.runs)
    return msgspec.structs.replace(rank, runs=runs)
