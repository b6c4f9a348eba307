"""Checking what a host script's collectives did: every rank's input and output, against NumPy in the same order."""

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


class BadEvidence(ValueError):
    """A file that a rank left for the check of its data, and that cannot be checked."""

    def __init__(self, what: str, rank: int) -> None:
        super().__init__(what)
        self.rank = rank


def check_recorded_io(outcome: Outcome, plan: Plan, folder: str) -> None:
    """Fill in ``wrong`` of every run that all ranks completed, where the algorithm has a ``reference``.

    Of ranks that disagree on their collectives nothing is compared.
    """
    reference = plan.algorithm.reference
    disagree = outcome.error is not None and outcome.error.kind == CollectiveMismatch.kind
    if reference is None or not outcome.complete or disagree:
        return
    ranks = range(plan.system.n_sips)
    missing = [
        rank for rank in ranks for index in range(len(outcome.ranks[rank].runs)) if not _is_there(folder, index, rank)
    ]
    if missing:
        said = f"what rank {missing[0]} left for checking its data has not come back from its host"
        outcome.fail(RunError("agent_failed", missing[0], f"{said}; run again, or with --no-verify-data"))
        return
    try:
        _compare_all(outcome, plan, reference, folder)
    except BadEvidence as error:
        outcome.fail(RunError("agent_failed", error.rank, f"{error}; run again, or with --no-verify-data"))


def _compare_all(outcome: Outcome, plan: Plan, reference: Reference, folder: str) -> None:
    ranks = range(plan.system.n_sips)
    for index in range(min(len(outcome.ranks[rank].runs) for rank in ranks)):
        inputs = [load(folder, index, rank, "in") for rank in ranks]
        try:
            expected = reference(inputs, plan.system)
        except Exception as error:
            said = f"algorithm {plan.algorithm.name}: its reference() raised {type(error).__name__}: {error}"
            outcome.fail(RunError("exception", None, said))
            return
        for rank in ranks:
            try:
                wrong = compare(load(folder, index, rank, "out"), expected[rank])
            except BadEvidence:
                raise
            except (ValueError, TypeError) as error:
                raise BadEvidence(f"the data of rank {rank} cannot be checked: {error}", rank) from None
            outcome.ranks[rank] = _with_wrong(outcome.ranks[rank], index, wrong)


def _is_there(folder: str, index: int, rank: int) -> bool:
    return all((Path(folder) / f"{index}-{rank}-{when}.npy").is_file() for when in ("in", "out"))


def load(folder: str, index: int, rank: int, when: str) -> Array:
    """What a rank left of the ``in`` or ``out`` of one of its runs.

    Raises:
        BadEvidence: when it is no array of numbers, or not a whole one.
    """
    path = Path(folder) / f"{index}-{rank}-{when}.npy"
    try:
        # Mapped, so that a header which claims more than there is takes no memory; nothing is ever unpickled.
        mapped = np.lib.format.open_memmap(path, mode="r")
        if mapped.dtype.kind not in "biuf":
            raise ValueError(f"its elements are {mapped.dtype}")
        return np.array(mapped)
    except Exception as error:
        # The header is read as Python source, by the tokenizer where NumPy takes it for an old one.
        said = f"what rank {rank} left for checking its data cannot be read: {path.name}: {error}"
        raise BadEvidence(said, rank) from None


def _with_wrong(rank: RankOutcome, index: int, wrong: Mismatch) -> RankOutcome:
    runs = list[RunRecord](rank.runs)
    runs[index] = msgspec.structs.replace(runs[index], wrong=wrong.elements, first_wrong=wrong.first)
    return msgspec.structs.replace(rank, runs=tuple(runs))
