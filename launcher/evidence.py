"""Checking what a host script's collectives did: every rank's input and output, against NumPy in the same order."""

from pathlib import Path

import msgspec
import numpy as np

from launcher.outcome import Outcome, RunError
from sipsim.host.seeded import Wrong, compare
from sipsim.job import RankOutcome, RunRecord
from sipsim.plan import Plan


def check_evidence(outcome: Outcome, plan: Plan, folder: str) -> None:
    """Fill in ``wrong`` of every run that all ranks completed, where the algorithm has a ``reference``."""
    reference = plan.algorithm.reference
    if reference is None or not outcome.complete:
        return
    ranks = range(plan.system.n_sips)
    missing = [
        rank for rank in ranks for index in range(len(outcome.ranks[rank].runs)) if not _is_there(folder, index, rank)
    ]
    if missing:
        said = f"what rank {missing[0]} left for checking its data has not come back from its host"
        outcome.fail(RunError("agent_failed", missing[0], f"{said}; run again, or with --no-verify-data"))
        return
    for index in range(min(len(outcome.ranks[rank].runs) for rank in ranks)):
        inputs = [_load(folder, index, rank, "in") for rank in ranks]
        try:
            expected = reference(inputs, plan.system)
        except Exception as error:
            said = f"algorithm {plan.algorithm.name}: its reference() raised {type(error).__name__}: {error}"
            outcome.fail(RunError("exception", None, said))
            return
        for rank in ranks:
            wrong = compare(_load(folder, index, rank, "out"), expected[rank])
            outcome.ranks[rank] = _with_wrong(outcome.ranks[rank], index, wrong)


def _is_there(folder: str, index: int, rank: int) -> bool:
    return all((Path(folder) / f"{index}-{rank}-{when}.npy").is_file() for when in ("in", "out"))


def _load(folder: str, index: int, rank: int, when: str) -> "np.ndarray[tuple[int, ...], np.dtype[np.generic]]":
    loaded: np.ndarray[tuple[int, ...], np.dtype[np.generic]] = np.load(Path(folder) / f"{index}-{rank}-{when}.npy")
    return loaded


def _with_wrong(rank: RankOutcome, index: int, wrong: Wrong) -> RankOutcome:
    runs = list[RunRecord](rank.runs)
    runs[index] = msgspec.structs.replace(runs[index], wrong=wrong.elements, first_wrong=wrong.first)
    return msgspec.structs.replace(rank, runs=tuple(runs))
