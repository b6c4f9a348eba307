"""A validation as tables in Markdown, as a document, and as a picture."""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from launcher.bench.published import TO_REPRODUCE
from tenstorrent.compare import NEAR, Summary, Verdict, summary

SCALES = {"ns": ("us", 1e-3)}
"""Units that share an axis with another, and the factor."""
FULL = 100


def percent(share: float) -> str:
    """A share with one digit behind the point."""
    return f"{FULL * share:.1f} %"


def rows(verdicts: Iterable[Verdict]) -> str:
    """A line a claimed row."""
    lines = ["| row | test | bytes | unit | measured | simulated | error |", "|---|---|---:|---|---:|---:|---:|"]
    for verdict in verdicts:
        row, error = verdict.row, verdict.error
        if row.kind == TO_REPRODUCE and verdict.claimed:
            ends = ["-", "-"] if error is None else [f"{verdict.simulated:.4g}", f"{FULL * error:+.1f} %"]
            nbytes = row.total_bytes or row.nbytes
            size = "" if nbytes is None else nbytes
            lines.append(f"| {row.id} | `{row.test}` | {size} | {row.metric} | {row.value:g} | {ends[0]} | {ends[1]} |")
    return "\n".join(lines)


def families(verdicts: Sequence[Verdict]) -> str:
    """A line a family and architecture, and one for an architecture as a whole."""
    lines = ["| architecture | family | rows | claimed | within 15 % | median error |", "|---|---|---:|---:|---:|---:|"]
    for architecture in dict.fromkeys(verdict.row.architecture for verdict in verdicts):
        own = [verdict for verdict in verdicts if verdict.row.architecture == architecture]
        names = dict.fromkeys(verdict.row.family for verdict in own)
        groups = [(f"`{name}`", [verdict for verdict in own if verdict.row.family == name]) for name in names]
        for name, group in [*groups, ("all", own)]:
            found = summary(group)
            if found.rows:
                median = "-" if found.median is None else percent(found.median)
                counts = f"{found.rows} | {found.claimed} | {found.near}"
                lines.append(f"| {architecture} | {name} | {counts} | {median} |")
    return "\n".join(lines)


def unclaimed(verdicts: Iterable[Verdict]) -> str:
    """A line a test of which rows are not claimed: they are misses."""
    groups: dict[tuple[str, ...], list[str]] = {}
    for verdict in verdicts:
        row = verdict.row
        if row.kind == TO_REPRODUCE and not verdict.claimed:
            groups.setdefault((row.architecture, row.family, row.test, verdict.reason), []).append(row.id)
    lines = ["| architecture | family | test | rows | which | why |", "|---|---|---|---:|---|---|"]
    for (architecture, family, test, reason), ids in groups.items():
        why = reason or "no bench simulates it"
        lines.append(f"| {architecture} | `{family}` | `{test}` | {len(ids)} | {' '.join(ids)} | {why} |")
    return "\n".join(lines)


def failures(verdicts: Iterable[Verdict]) -> str:
    """A line a row whose case has failed; "" if none has."""
    return "\n".join(f"{verdict.row.id}: {verdict.reason}" for verdict in verdicts if verdict.has_failed)


def line_of(found: Summary) -> str:
    """A summary in words."""
    median = "no figure" if found.median is None else f"median error {percent(found.median)}"
    words = [f"{found.near} of {found.rows} rows within {FULL * NEAR:.0f} %"]
    if found.rows:
        words.append(percent(found.near / found.rows))
    if found.claimed:
        words.append(f"{percent(found.near / found.claimed)} of the {found.claimed} claimed")
    return ", ".join([*words, median])


def without(found: dict[str, list[Verdict]]) -> str:
    """A line a mechanism that is switched off. ``found``: the first is with all on."""
    lines = ["| without | rows within 15 % | change | median error |", "|---|---:|---:|---:|"]
    before = None
    for name, verdicts in found.items():
        each = summary(verdicts)
        before = each.near if before is None else before
        median = "-" if each.median is None else percent(each.median)
        failed = sum(verdict.has_failed for verdict in verdicts)
        note = f", {failed} failed" if failed else ""
        lines.append(f"| {name} | {each.near} of {each.rows}{note} | {each.near - before:+} | {median} |")
    return "\n".join(lines)


def document(verdicts: Iterable[Verdict]) -> dict[str, Any]:
    """Every row, inputs too; ``error`` is null where there is no figure."""
    return {
        "rows": [
            {"id": v.row.id, "kind": v.row.kind, "measured": v.row.value, "simulated": v.simulated, "error": v.error}
            for v in verdicts
        ]
    }


def scatter(verdicts: Iterable[Verdict], pyplot: Any) -> Any:
    """Simulated over measured as a figure of matplotlib, an axis a unit. ``pyplot``: its module."""
    units: dict[str, dict[str, list[tuple[float, float]]]] = {}
    for verdict in verdicts:
        row, simulated = verdict.row, verdict.simulated
        if (
            verdict.error is not None
            and row.value is not None
            and simulated is not None
            and min(row.value, simulated) > 0
        ):
            unit, scale = SCALES.get(row.metric, (row.metric, 1.0))
            point = (row.value * scale, simulated * scale)
            units.setdefault(unit, {}).setdefault(row.family, []).append(point)
    names = sorted({name for groups in units.values() for name in groups})
    figure, axes = pyplot.subplots(1, max(len(units), 1), figsize=(8 * max(len(units), 1), 7), squeeze=False)
    for axis, (unit, groups) in zip(axes[0], sorted(units.items()), strict=False):
        _axis(axis, unit, groups, lambda name: f"C{names.index(name) % 10}", names)
    figure.tight_layout()
    return figure


MARKERS = "osv^D"


def _axis(
    axis: Any, unit: str, groups: dict[str, list[tuple[float, float]]], color: Callable[[str], str], names: list[str]
) -> None:
    every = [value for points in groups.values() for point in points for value in point]
    ends = (min(every) / math.sqrt(2), max(every) * math.sqrt(2))
    for factor, style in ((1 - NEAR, ":"), (1.0, "-"), (1 + NEAR, ":")):
        axis.plot(ends, [factor * end for end in ends], style, color="gray", linewidth=1)
    for name, points in sorted(groups.items()):
        marker = MARKERS[names.index(name) // 10 % len(MARKERS)]
        axis.plot(*zip(*points, strict=True), marker, color=color(name), label=name, markersize=4)
    axis.set(xscale="log", yscale="log", xlabel=f"measured, {unit}", ylabel=f"simulated, {unit}")
    axis.legend(fontsize=7)
