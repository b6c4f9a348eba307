"""The rows that a parameter is searched over: those that it can move, and of these a few cheap ones.

What is cheap is told by ``Bench.effort``; nobody looks at an error. The parameters of links are searched over raw
links, those of routers over the fabric, those of operations over operations. Operations and the fabric depend on the
links' parameters too, but those are found first; of a chip without rows of raw links, over the fabric.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from launcher.bench.base import Case, request_of
from launcher.bench.benches.ccl import CclCase
from launcher.bench.fit.parameters import Model, Parameter
from launcher.bench.mechanisms import RAW_LINKS
from launcher.bench.published import Published
from launcher.bench.validation import effort_of

SECTIONS = {
    "": ("eth-bandwidth", "eth-ping", "ring-latency"),
    "fabric.": ("fabric-bandwidth", "fabric-latency"),
    "fabric.mux_visit_ns": ("fabric-mux",),
    "ccl.": ("ccl",),
}
"""In the order in which they are searched: the benches whose rows a key can move, by the longest prefix that fits."""
WITHOUT_RAW_LINKS = "fabric."
"""The section whose benches stand for raw links, where a chip has no rows of those."""


def _adds(parameter: Parameter, case: CclCase) -> bool:
    return case.test in ("reduce_scatter", "all_reduce")


def _is_one_call(parameter: Parameter, case: CclCase) -> bool:
    return case.calls == 1


def _has_slices_to_copy(parameter: Parameter, case: CclCase) -> bool:
    return sum(case.sizes) >= parameter.least * case.chips * case.links


CONDITIONS: dict[str, Callable[[Parameter, CclCase], bool]] = {
    "ccl.add_GBps": _adds,
    "ccl.skew_ns": _is_one_call,
    "ccl.copier_bytes": _has_slices_to_copy,
}
"""Which operations a key of them can move; all of others."""


class Few(NamedTuple):
    """``cases``: at most so many for a parameter, from the cheapest ``1 / part`` of them, but from two at least."""

    cases: int
    part: int


FEW = {
    "eth-bandwidth": Few(8, 2),
    "fabric-bandwidth": Few(4, 3),
    "fabric-latency": Few(6, 1),
    "fabric-mux": Few(4, 1),
    "ccl": Few(8, 3),
}
"""By bench; of others all cases."""
LEAST_POOL = 2
LINE_RATE_BYTES = 2048
_REVISION = re.compile(r"fabric\.revisions\.(.+)\.costs\.\w+")


def section_of(parameter: Parameter) -> str:
    """Its prefix in ``SECTIONS``."""
    return max((prefix for prefix in SECTIONS if parameter.key.key.startswith(prefix)), key=len)


def rows_for(parameter: Parameter, model: Model, rows: Iterable[Published]) -> list[Published]:
    """The rows that a parameter is searched over."""
    known, section = list(rows), section_of(parameter)
    movable = _movable(parameter, model, known, section)
    if not movable and not section:
        movable = _movable(parameter, model, known, WITHOUT_RAW_LINKS)
    benches = sorted({request_of(row).bench for row in movable})
    own = {bench: [row for row in movable if request_of(row).bench == bench] for bench in benches}
    return [row for bench in benches for row in cheap(own[bench], FEW.get(bench))]


def _movable(parameter: Parameter, model: Model, rows: Iterable[Published], section: str) -> list[Published]:
    return [row for row in rows if can_move(parameter, model, row, section) and not _is_line_rate(row)]


def can_move(parameter: Parameter, model: Model, row: Published, section: str) -> bool:
    """Whether a parameter is searched over a row of a section, if it is cheap."""
    request = request_of(row)
    if request.claim is None or request.chip != parameter.key.chip:
        return False
    if request.bench not in SECTIONS[section]:
        return False
    case = request.claim.case
    condition = CONDITIONS.get(parameter.key.key)
    if condition and isinstance(case, CclCase):
        return condition(parameter, case)
    return _has_cost(parameter, model, case)


def _has_cost(parameter: Parameter, model: Model, case: Case) -> bool:
    """Costs of routers: whether the revision of a case has it, or the fabric's."""
    revision = getattr(case, "revision", None)
    if revision is None or ".costs." not in parameter.key.key:
        return True
    if found := _REVISION.fullmatch(parameter.key.key):
        return bool(found[1] == revision)
    prefix = f"{parameter.key.chip}:fabric.revisions.{revision}.costs."
    owned = [each.leader for each in model.followers if each.key.name.startswith(prefix)]
    owned += [each.name for each in model.parameters if each.name.startswith(prefix)]
    return not owned or parameter.name in owned


def _is_line_rate(row: Published) -> bool:
    """Whether the line rate alone sets it: bandwidth of raw links in one direction, of long messages."""
    is_one_way = row.family in RAW_LINKS and row.metric == "GB/s" and "bi_dir" not in row.test
    return is_one_way and (row.nbytes or 0) >= LINE_RATE_BYTES


def cheap(rows: Sequence[Published], few: Few | None) -> list[Published]:
    """The rows of few cases: of the part of them that takes least effort, evenly spread over bytes."""
    if few is None:
        return list(rows)
    found: dict[Case, list[Published]] = {}
    for row in sorted(rows, key=lambda row: row.id):
        found.setdefault(_case(row), []).append(row)
    by_effort = sorted(found, key=lambda case: _effort(found[case][0]))
    pool = sorted(by_effort[: max(-(-len(found) // few.part), LEAST_POOL)], key=lambda case: sum(case.sizes))
    last, steps = len(pool) - 1, max(few.cases - 1, 1)
    chosen = pool if len(pool) <= few.cases else [pool[last * index // steps] for index in range(few.cases)]
    return [row for case in chosen for row in found[case]]


def _case(row: Published) -> Case:
    claim = request_of(row).claim
    assert claim is not None
    return claim.case


def _effort(row: Published) -> float:
    return effort_of(request_of(row))
