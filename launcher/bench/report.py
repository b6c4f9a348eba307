"""The figures of a bench as tables, documents and plots, each beside its published one."""

import csv
import io
import math
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any, NamedTuple

from launcher.bench.base import Figure
from launcher.bench.published import Published

COLUMNS = ("arch", "test", "channels", "hops", "bytes", "metric", "statistic", "simulated", "published", "error", "id")
WIDTH, HEIGHT = 64, 14
LEAST_POINTS = 3
SIMULATED, PUBLISHED = "*", "o"


class Line(NamedTuple):
    """A figure of chips of an architecture, and its published row, if there is one."""

    architecture: str
    figure: Figure
    published: Published | None

    @property
    def error(self) -> float | None:
        """Simulated over published, less 1."""
        if self.published is None or not self.published.value:
            return None
        return self.figure.value / self.published.value - 1

    @property
    def title(self) -> str:
        """The table that it stands in."""
        figure, case = self.figure, self.figure.case
        return f"{case.test}: {figure.statistic} in {figure.metric}, channels {case.channels}, hops {case.hops}"

    def document(self) -> dict[str, Any]:
        """Its fields, as ``COLUMNS`` names them."""
        figure, row = self.figure, self.published
        return {
            "arch": self.architecture,
            "test": figure.case.test,
            "channels": figure.case.channels,
            "hops": figure.case.hops,
            "bytes": figure.nbytes,
            "metric": figure.metric,
            "statistic": figure.statistic,
            "simulated": figure.value,
            "published": row.value if row else None,
            "error": self.error,
            "id": row.id if row else None,
        }


def csv_text(lines: Iterable[Line]) -> str:
    """Lines as CSV."""
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(line.document() for line in lines)
    return text.getvalue()


def tables(lines: Sequence[Line]) -> str:
    """A table a statistic of a case, with a line a size."""
    texts = []
    for title, group in groupby(sorted(lines, key=_place), lambda line: line.title):
        texts += ["", title, f"{'bytes':>10} {'simulated':>11} {'published':>11} {'error':>8}  row"]
        for line in group:
            row, error = line.published, line.error
            known = ["-", "-", ""] if row is None else [f"{row.value:g}", f"{100 * (error or 0):+.1f}%", row.id]
            shown = f"{line.figure.nbytes:>10} {line.figure.value:>11.2f} {known[0]:>11} {known[1]:>8}  {known[2]}"
            texts.append(f"{shown} {line.figure.note}".rstrip())
    return "\n".join(texts)


def best_channels(lines: Sequence[Line]) -> str:
    """For cases with several numbers of channels, the number that gives most bytes a second, by size."""
    by_case: dict[tuple[str, int, int], list[Figure]] = {}
    for line in lines:
        figure = line.figure
        if figure.metric == "GB/s":
            by_case.setdefault((figure.case.test, figure.case.hops, figure.nbytes), []).append(figure)
    rows = [(key, max(each, key=lambda figure: figure.value)) for key, each in by_case.items() if len(each) > 1]
    if not rows:
        return ""
    texts = ["", "the number of channels that gives most", f"{'bytes':>10} {'GB/s':>8} {'channels':>9}  test"]
    texts += [
        f"{nbytes:>10} {figure.value:>8.2f} {figure.case.channels:>9}  {test}" for (test, _, nbytes), figure in rows
    ]
    return "\n".join(texts)


def plots(lines: Sequence[Line]) -> str:
    """A plot a statistic of a case that has three sizes or more: value over size, which has a logarithmic axis."""
    texts = []
    for title, group in groupby(sorted(lines, key=_place), lambda line: line.title):
        points = list(group)
        if len(points) >= LEAST_POINTS:
            texts += ["", f"{title} ({SIMULATED} simulated, {PUBLISHED} published)", _plot(points)]
    return "\n".join(texts)


def _place(line: Line) -> tuple[object, ...]:
    figure = line.figure
    return figure.case.test, figure.statistic, figure.metric, figure.case.channels, figure.case.hops, figure.nbytes


def _plot(points: Sequence[Line]) -> str:
    most = max(max(line.figure.value, line.published.value if line.published else 0) for line in points) or 1
    least_size, most_size = (math.log2(end(line.figure.nbytes for line in points)) for end in (min, max))
    grid = [[" "] * WIDTH for _ in range(HEIGHT)]

    def put(nbytes: int, value: float, mark: str) -> None:
        x = round((math.log2(nbytes) - least_size) / (most_size - least_size) * (WIDTH - 1))
        y = round(value / most * (HEIGHT - 1))
        grid[HEIGHT - 1 - y][x] = mark

    for line in points:
        if line.published is not None:
            put(line.figure.nbytes, line.published.value, PUBLISHED)
    for line in points:
        put(line.figure.nbytes, line.figure.value, SIMULATED)
    names = [f"{most:.4g}", *[""] * (HEIGHT - 2), "0"]
    left, right = (str(end(line.figure.nbytes for line in points)) for end in (min, max))
    rows = [f"{name:>8} |{''.join(row)}".rstrip() for name, row in zip(names, grid, strict=True)]
    return "\n".join([*rows, f"{'':>8} +{'-' * WIDTH}", f"{'':>9} {left}{right:>{WIDTH - len(left)}} B"])


def picture(lines: Sequence[Line], pyplot: Any) -> Any:
    """The same plots as a figure of matplotlib, one below the other. ``pyplot``: its module."""
    groups = [list(group) for _, group in groupby(sorted(lines, key=_place), lambda line: line.title)]
    figure, axes = pyplot.subplots(len(groups), 1, figsize=(8, 4 * len(groups)), squeeze=False)
    for (axis,), points in zip(axes, groups, strict=True):
        axis.set_title(points[0].title, fontsize=9)
        axis.set_xscale("log", base=2)
        axis.set_xlabel("bytes")
        axis.set_ylabel(points[0].figure.metric)
        axis.plot([p.figure.nbytes for p in points], [p.figure.value for p in points], "*-", label="simulated")
        known = [(p.figure.nbytes, p.published.value) for p in points if p.published is not None]
        if known:
            axis.plot(*zip(*known, strict=True), "o", label="published")
        axis.set_ylim(bottom=0)
        axis.legend()
    figure.tight_layout()
    return figure
