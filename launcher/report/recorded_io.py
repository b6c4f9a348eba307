"""Checks the collectives of a host script: every rank's recorded input and output, against NumPy in the same order."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from launcher.report.outcome import Outcome, RunError
from sipsim.errors import CollectiveMismatch
from sipsim.host.seeded import Mismatch, compare
from sipsim.plan.job import RankOutcome, RunRecord
from sipsim.plan.plan import Plan

Array = np.ndarray[tuple[int, ...], np.dtype[np.generic]]
Reference = Callable[..., Any]


class BadRecording(ValueError):
    """A recorded file of a rank that cannot be checked."""

    def __init__(self, what: str, rank: int) -> None:
        super().__init__(what)
        self.rank = rank


def check_recorded_io(outcome: Outcome, plan: Plan, folder: str) -> None:
    """Fill in ``wrong`` of every run that all ranks completed, if the algorithm has a ``reference``.

    When ranks disagree on their collectives nothing is compared.
    """
    reference = plan.algorithm.reference
    disagree = outcome.error is not None and outcome.error.kind == CollectiveMismatch.kind
    if reference is None or not outcome.complete or disagree:
        return
    ranks = range(plan.system.n_sips)
    recorded = ((rank, index) for rank in ranks for index in range(len(outcome.ranks[rank].runs)))
    missing = [rank for rank, index in recorded if not _is_complete(folder, index, rank)]
    if missing:
        what = f"the recorded data of rank {missing[0]} have not arrived from its host"
        outcome.fail(RunError("agent_failed", missing[0], f"{what}; run again, or with --no-verify-data"))
        return
    try:
        _compare_all(outcome, plan, reference, folder)
    except BadRecording as error:
        outcome.fail(RunError("agent_failed", error.rank, f"{error}; run again, or with --no-verify-data"))


def _compare_all(outcome: Outcome, plan: Plan, reference: Reference, folder: str) -> None:
    ranks = range(plan.system.n_sips)
    for index in range(min(len(outcome.ranks[rank].runs) for rank in ranks)):
        inputs = [load(folder, index, rank, "in") for rank in ranks]
        try:
            expected = reference(inputs, plan.system)
        except Exception as error:
            message = f"algorithm {plan.algorithm.name}: its reference() raised {type(error).__name__}: {error}"
            outcome.fail(RunError("exception", None, message))
            return
        for rank in ranks:
            try:
                wrong = compare(load(folder, index, rank, "out"), expected[rank])
            except BadRecording:
                raise
            except (ValueError, TypeError) as error:
                raise BadRecording(f"the data of rank {rank} cannot be checked: {error}", rank) from None
            outcome.ranks[rank] = _with_wrong(outcome.ranks[rank], index, wrong)


def _is_complete(folder: str, index: int, rank: int) -> bool:
    return all((Path(folder) / f"{index}-{rank}-{when}.npy").is_file() for when in ("in", "out"))


def load(folder: str, index: int, rank: int, when: str) -> Array:
    """The recorded ``in`` or ``out`` of one of a rank's runs.

    Raises:
        BadRecording: when it is no array of numbers, or incomplete.
    """
    path = Path(folder) / f"{index}-{rank}-{when}.npy"
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
