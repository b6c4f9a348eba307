"""Checks of a run's results: collectives of a host script against NumPy, and verdicts of the ranks' second passes."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import msgspec
import numpy as np

from launcher.report.outcome import FinishedRun, FoundFacts, Outcome, RunError
from sipsim.chips.api.run_plan import RunPlan
from sipsim.collectives.semantics import COLLECTIVES
from sipsim.collectives.testdata import NONE_WRONG, Mismatch, compare
from sipsim.core.dtypes import DTYPES, DType
from sipsim.core.errors import CollectiveMismatch, error_text, pass_on_halt
from sipsim.core.fields import no_time
from sipsim.core.files import reader
from sipsim.records.artifacts import RECORDED_IO, rank_folder
from sipsim.records.replay import Verdict
from sipsim.records.report import RankOutcome, RunRecord

Array = np.ndarray[tuple[int, ...], np.dtype[np.generic]]


class BadRecording(ValueError):
    """Error: the recorded data of ``rank`` cannot be read or checked."""

    def __init__(self, what: str, rank: int) -> None:
        super().__init__(what)
        self.rank = rank


def check_recorded_io(outcome: Outcome, plan: RunPlan, folder: str) -> None:
    """Set ``wrong`` in the records of every completed collective whose expected results are known.

    Recorded outputs of all ranks are compared with results that are computed from the recorded inputs, in the same
    order. Expected results are computed by the algorithm's schedule (groups), by the algorithm's ``reference``
    (reductions), or by the collective (data movement). ``folder`` contains the artifact folders of all ranks.

    If ranks disagree on collective calls, nothing is compared.
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
    """Source of expected results. ``compute(inputs)`` returns the results of all ranks from the inputs of all ranks,
    which are 1-D if ``is_flat``. ``whose``: name of the function, for messages. ``files(index)`` returns whether the
    rank at this index of the group records an input, and whether the rank records an output.
    """

    whose: str
    compute: Callable[[list[Any]], Any]
    files: Callable[[int], tuple[bool, bool]] = lambda _index: (True, True)
    is_flat: bool = False


def _results_of(run: RunRecord, plan: RunPlan) -> _Results | None:
    """Return the source of expected results; None if there is no ``reference`` or the collective is not loaded here."""
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
    """Compare the results of all ranks; if expected results cannot be computed, let the run fail and return False."""
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
    """Return the recorded elements as a 1-D array; None if the tensor was not recorded."""
    if not _path(folder, number, rank, when).is_file():
        return None
    return _elements(load(folder, number, rank, when), dtype).reshape(-1)


def _compare(folder: str, number: int, rank: int, expected: Array | None, dtype: DType) -> Mismatch:
    """Compare a rank's recorded result with ``expected``; if ``expected`` is None, any result is correct."""
    if expected is None:
        return NONE_WRONG
    return compare(_elements(load(folder, number, rank, "out"), dtype), expected)


def _elements(stored: Array, dtype: DType) -> Array:
    """Return the elements as ``dtype``; NumPy files store some types as another type with the same bits."""
    return stored.view(dtype.numpy) if stored.dtype == dtype.stored else stored


def _path(folder: str, number: int, rank: int, when: str) -> Path:
    return Path(rank_folder(folder, rank), RECORDED_IO, f"{number}-{rank}-{when}.npy")


def load(folder: str, number: int, rank: int, when: str) -> Array:
    """Return the recorded ``in`` or ``out`` of one collective of a rank.

    Raises:
        BadRecording: if the file is incomplete, or is no array of numbers.
    """
    path = _path(folder, number, rank, when)
    try:
        with reader(path) as file:
            # Mapped, so that a header with a wrong size allocates no memory; nothing is unpickled.
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


WRONG_NUMBERS = "wrong_numbers"


class SecondPassEntry(msgspec.Struct):
    """Result of the second pass, over all ranks."""

    records: Annotated[int, no_time("Records of the op logs that the second pass executed again.")]
    differences: Annotated[int, no_time("Records whose values differ between the passes, and differences at the end.")]
    races: Annotated[int, no_time("Accesses to the same bytes at the same time, whose order the program leaves open.")]
    first_race: Annotated[str, no_time("The first race; empty without one.")]
    stopped: Annotated[str, no_time("Why a rank left out records, for the first such rank; empty if none did.")]


def note_verdicts(outcome: Outcome) -> None:
    """Add the verdicts of the second pass to the outcome of a complete run.

    The first difference of each rank becomes a failure of kind ``wrong_numbers``; races become notices.
    """
    if outcome.error is not None or not outcome.complete or outcome.cut_short:
        return
    verdicts = _verdicts(outcome)
    found = [(rank, each.difference) for rank, each in verdicts.items() if each.difference is not None]
    for rank, difference in found:
        facts: FoundFacts = {}
        if difference.number or difference.direction:
            facts = {"cube": difference.cube, "pe": difference.pe, "time_ps": difference.time_ps}
        if difference.number:
            facts |= {"record": difference.number, "record_text": difference.record}
        if difference.direction:
            facts["direction"] = difference.direction
        outcome.fail(RunError(WRONG_NUMBERS, rank, f"rank {rank}, second pass: {difference.message}", facts=facts))
    for line in (_stopped(verdicts), _race(verdicts)):
        if line:
            outcome.notices.append(line)


def entry_of(outcome: Outcome) -> SecondPassEntry | None:
    """Return the result file's entry on the second pass; None if the run made no second pass."""
    verdicts = _verdicts(outcome)
    if not verdicts or outcome.cut_short:
        return None
    return SecondPassEntry(
        sum(each.records for each in verdicts.values()),
        sum(each.differences for each in verdicts.values()),
        sum(each.races for each in verdicts.values()),
        next((each.first_race for each in verdicts.values() if each.first_race), ""),
        next((each.stopped for each in verdicts.values() if each.stopped), ""),
    )


def _verdicts(outcome: Outcome) -> dict[int, Verdict]:
    ranks = sorted(outcome.ranks.items())
    return {rank: result.verdict for rank, result in ranks if result.verdict is not None}


def _stopped(verdicts: dict[int, Verdict]) -> str:
    ranks = [rank for rank, each in verdicts.items() if each.stopped]
    more = f" (and {len(ranks) - 1} more)" if len(ranks) > 1 else ""
    return f"the second pass of rank {ranks[0]}{more} stopped: {verdicts[ranks[0]].stopped}" if ranks else ""


def _race(verdicts: dict[int, Verdict]) -> str:
    total = sum(each.races for each in verdicts.values())
    rank = next((rank for rank, each in verdicts.items() if each.races), None)
    if rank is None:
        return ""
    what = "1 access races with" if total == 1 else f"{total} accesses race with"
    return f"{what} another access to the same bytes at the same time: rank {rank}, {verdicts[rank].first_race}"
