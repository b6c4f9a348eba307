"""The collectives that all ranks of their group have completed, from the records of every rank. Pure."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from sipsim.records.job import RunRecord


class FinishedRun(NamedTuple):
    """``records``: of its ``ranks``, the members of its group in their order. ``runs``: what these ranks number it."""

    ranks: tuple[int, ...]
    records: tuple[RunRecord, ...]
    runs: tuple[int, ...]


class _Found(NamedTuple):
    record: RunRecord
    run: int
    place: int


_Key = tuple[int, int, int]
"""Group, call in the group, and how often the rank has recorded that before."""


def finished_runs(of_ranks: Sequence[Sequence[RunRecord]]) -> list[FinishedRun]:
    """In the order of their ends on the first rank of their groups; those of all ranks as rank 0 recorded them."""
    by_rank = [dict(_keyed(records)) for records in of_ranks]
    found: dict[_Key, tuple[tuple[int, int, int], FinishedRun]] = {}
    for rank, records in enumerate(by_rank):
        for key, (record, _, place) in records.items():
            ranks = record.sips or tuple(range(len(of_ranks)))
            if rank == ranks[0] and all(each < len(by_rank) and key in by_rank[each] for each in ranks):
                of_run = [by_rank[each][key] for each in ranks]
                run = FinishedRun(ranks, tuple(each.record for each in of_run), tuple(each.run for each in of_run))
                found[key] = (_end_ps(record), rank, place), run
    return [run for _, run in sorted(found.values(), key=lambda each: each[0])]


def _keyed(records: Sequence[RunRecord]) -> Iterator[tuple[_Key, _Found]]:
    seen: dict[tuple[int, int], int] = {}
    for index, record in enumerate(records):
        times = seen[record.group, record.call] = seen.get((record.group, record.call), -1) + 1
        run = index if record.run is None else record.run
        yield (record.group, record.call, times), _Found(record, run, index)


def _end_ps(record: RunRecord) -> int:
    return record.spans_ps[-1][1] if record.spans_ps else 0
