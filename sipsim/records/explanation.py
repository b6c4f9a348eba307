"""Explanation of the time of a row, as plain data: the result of a chip kind's ``explain``. Simulated times in ps."""

from collections.abc import Mapping, Sequence
from typing import Annotated, NamedTuple

import msgspec

from sipsim.core.fields import no_time, simulated_time


class MeasuredRow(NamedTuple):
    """A row to explain. ``iterations``: (start, end) of each iteration, in ps. ``runs``: for each rank that takes
    part, the number of the row's collective on this rank; empty if the row is a whole run.
    """

    iterations: Sequence[tuple[int, int]]
    runs: Mapping[int, int]


class TimePart(msgspec.Struct, frozen=True):
    """One component of the time on the critical path."""

    part: Annotated[str, no_time("What took the time.")]
    keys: Annotated[
        tuple[str, ...], no_time("The config keys that this time comes from; empty for waiting and sharing.")
    ]
    ps: Annotated[int, simulated_time("The time, in ps.")]


class PathStep(msgspec.Struct, frozen=True):
    """A span on the critical path. The parts add up to the duration of the span."""

    rank: Annotated[int, no_time("The SIP on which the span ended.")]
    where: Annotated[str, no_time("The component; for a message, the components of its sender and its receiver.")]
    what: Annotated[str, no_time("What it did: a command, a message, a credit, a poll.")]
    phase: Annotated[str, no_time("The phase of the kernel, as tl.phase names it; for a message, the sender's phase.")]
    start_ps: Annotated[int, simulated_time("When it began, in ps: at the end of the step before.")]
    end_ps: Annotated[int, simulated_time("When it ended, in ps.")]
    parts: Annotated[tuple[TimePart, ...], no_time("The components of its time.")]


class PhaseTime(msgspec.Struct, frozen=True):
    """The time of one phase of the kernels (``tl.phase``)."""

    phase: Annotated[str, no_time("The phase, as tl.phase names it.")]
    path_ps: Annotated[int, simulated_time("Its time on the critical path, in ps.")]
    kernels_ps: Annotated[
        dict[str, int], simulated_time("The time of all kernels in it by the command that they waited for, in ps.")
    ]


class WhatIf(msgspec.Struct):
    """The estimated effect of a change of the config that halves a cost or doubles bandwidths."""

    name: Annotated[str, no_time("The cost that changes.")]
    settings: Annotated[tuple[str, ...], no_time("The change, as arguments of --set.")]
    saved_ps: Annotated[
        int, simulated_time("How much earlier the iteration would end, estimated from its spans, in ps.")
    ]
    rerun_saved_ps: Annotated[
        int | None, simulated_time("How much less time the row took in a run with the change, in ps; null if not run.")
    ] = None


class Explanation(msgspec.Struct):
    """Explanation of the longest iteration of a row, or of a whole run without rows."""

    iteration: Annotated[int, no_time("The index of the iteration among the timed ones.")]
    since_ps: Annotated[int, simulated_time("When the iteration began, in ps.")]
    until_ps: Annotated[int, simulated_time("When its last kernel ended, or when the host was notified of it, in ps.")]
    where: Annotated[str, no_time("The PE of that kernel; or the host, if its notification is the last event.")]
    parts: Annotated[tuple[TimePart, ...], no_time("The parts of the whole critical path, the largest first.")]
    phases: Annotated[tuple[PhaseTime, ...], no_time("The phases of the kernels.")]
    steps: Annotated[tuple[PathStep, ...], no_time("The critical path; its steps add up to the time of the iteration.")]
    what_if: Annotated[tuple[WhatIf, ...], no_time("What changes would save, largest first; for the last row only.")]
