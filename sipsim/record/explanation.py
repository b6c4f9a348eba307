"""Where the time of a row went, as plain data: what a chip kind's ``explain`` returns. Times are simulated, in ps."""

from typing import NamedTuple

import msgspec

Ps = int


class Part(NamedTuple):
    """``ps`` of a step: what it went to, and the config keys that it comes from, if any."""

    part: str
    keys: tuple[str, ...]
    ps: Ps


class Step(NamedTuple):
    """A span on the critical path; ``parts`` add up to its time. ``where``: the component, with its SIP."""

    rank: int
    where: str
    what: str
    phase: str
    start_ps: Ps
    end_ps: Ps
    parts: tuple[Part, ...]


class PhaseTime(msgspec.Struct, frozen=True):
    """A phase: its time on the critical path, and the time of all kernels in it by what they did or waited for."""

    phase: str
    path_ps: Ps
    kernels_ps: dict[str, Ps]


class WhatIf(msgspec.Struct):
    """A change of the config, as ``--set`` takes it; ``saved_ps`` by the graph, ``rerun_saved_ps`` by a run with it."""

    name: str
    settings: tuple[str, ...]
    saved_ps: Ps
    rerun_saved_ps: Ps | None = None


class Explanation(msgspec.Struct):
    """Of the longest iteration of a row: ``steps`` are its critical path, and their times add up to it.

    ``parts``: of all steps, the largest first. ``where``: the PE whose kernel ended last.
    """

    iteration: int
    since_ps: Ps
    until_ps: Ps
    where: str
    parts: tuple[Part, ...]
    phases: tuple[PhaseTime, ...]
    steps: tuple[Step, ...]
    what_if: tuple[WhatIf, ...]
