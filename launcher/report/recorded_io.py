"""Checks the collectives of a host script: every rank's recorded input and output, against NumPy in the same order."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np

from launcher.report.outcome import Outcome, RunError
from sipsim.ccl.collectives.base import COLLECTIVES
from sipsim.ccl.seeded import NONE_WRONG, Mismatch, compare
from sipsim.dtypes import DTYPES, DType
from sipsim.errors import CollectiveMismatch
from sipsim.plan.base import RunPlan
from sipsim.plan.job import RankOutcome, RunRecord
from sipsim.record.artifacts import RECORDED_IO, rank_folder

Array = np.ndarray[tuple[int, ...], np.dtype[np.generic]]


class BadRecording(ValueError):
    """A recorded file of a rank that cannot be checked."""

    def __init__(self, what: str, rank: int) -> None:
        super().__init__(what)
        self.rank = rank


def check_recorded_io(outcome: Outcome, plan: RunPlan, folder: str) -> None:
    """Fill in ``wrong`` of every run that all ranks completed and whose results are known here.

    What a collective with operators leaves is known to the algorithm's ``reference``; other collectives know their own.
    ``folder``: what holds the artifact folders of all ranks.

    When ranks disagree on their collectives nothing is compared.
    """
    disagree = outcome.error is not None and outcome.error.kind == CollectiveMismatch.kind
    if not outcome.complete or disagree:
        return
    recorded = ((rank, index, run) for rank in _ranks(plan) for index, run in enumerate(outcome.ranks[rank].runs))
    missing = [
        rank
        for rank, index, run in recorded
        if _results_of(run, plan) is not None and not _is_complete(folder, index, rank)
    ]
    if missing:
        what = f"the recorded data of rank {missing[0]} have not arrived from its host"
        outcome.fail(RunError("agent_failed", missing[0], f"{what}; run again, or with --no-verify-data"))
        return
    try:
        _compare_all(outcome, plan, folder)
    except BadRecording as error:
        outcome.fail(RunError("agent_failed", error.rank, f"{error}; run again, or with --no-verify-data"))


def _compare_all(outcome: Outcome, plan: RunPlan, folder: str) -> None:
    ranks = _ranks(plan)
    for index in range(min(len(outcome.ranks[rank].runs) for rank in ranks)):
        run = outcome.ranks[0].runs[index]
        results, dtype = _results_of(run, plan), DTYPES[run.dtype]
        if results is None:
            continue
        inputs = [_elements(load(folder, index, rank, "in"), dtype) for rank in ranks]
        try:
            expected = results.compute(inputs)
        except Exception as error:
            message = f"{results.whose}() raised {type(error).__name__}: {error}"
            outcome.fail(RunError("exception", None, message))
            return
        for rank in ranks:
            try:
                wrong = _compare(folder, index, rank, expected[rank], dtype)
            except BadRecording:
                raise
            except (ValueError, TypeError) as error:
                raise BadRecording(f"the data of rank {rank} cannot be checked: {error}", rank) from None
            outcome.ranks[rank] = _with_wrong(outcome.ranks[rank], index, wrong)


def _compare(folder: str, index: int, rank: int, expected: Array | None, dtype: DType) -> Mismatch:
    """None: that rank's result may be anything."""
    if expected is None:
        return NONE_WRONG
    return compare(_elements(load(folder, index, rank, "out"), dtype), expected)


def _elements(stored: Array, dtype: DType) -> Array:
    """What was stored in another type of the same bits."""
    return stored.view(dtype.numpy) if stored.dtype == dtype.stored else stored


def _ranks(plan: RunPlan) -> range:
    """The ranks of the process group."""
    return range(plan.system.n_sips)


class _Results(NamedTuple):
    """``compute(inputs)``: every rank's result from every rank's source. ``whose``: the function, for messages."""

    whose: str
    compute: Callable[[list[Array]], Any]


def _results_of(run: RunRecord, plan: RunPlan) -> _Results | None:
    """None when they are not known here: no ``reference``, or a module's collective that is not loaded here."""
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


def _is_complete(folder: str, index: int, rank: int) -> bool:
    return all(_path(folder, index, rank, when).is_file() for when in ("in", "out"))


def _path(folder: str, index: int, rank: int, when: str) -> Path:
    return Path(rank_folder(folder, rank), RECORDED_IO, f"{index}-{rank}-{when}.npy")


def load(folder: str, index: int, rank: int, when: str) -> Array:
    """The recorded ``in`` or ``out`` of one of a rank's runs.

    Raises:
        BadRecording: when it is no array of numbers, or incomplete.
    """
    path = _path(folder, index, rank, when)
    try:
        # Mapped, so that a header with a wrong size takes no memory; nothing is unpickled.
        mapped = np.lib.format.open_memmap(path, mode="r")
        if mapped.dtype.kind not in "biuf":
            raise ValueError(f"its elements are {mapped.dtype}")
        return np.array(mapped)
    except Exception as error:
        # NumPy parses the header as Python source, which may raise anything.
        raise BadRecording(f"the recorded data of rank {rank} cannot be read: {path.name}: {error}", rank) from None


def _with_wrong(rank: RankOutcome, index: int, wrong: Mismatch) -> RankOutcome:
    runs = list[RunRecord](rank.runs)
    runs[index] = msgspec.structs.replace(runs[index], wrong=wrong.elements, first_wrong=wrong.first)
    return msgspec.structs.replace(rank, runs=tuple(runs))
