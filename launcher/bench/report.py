"""The figures of a bench as tables, documents and plots, each beside its published one."""

import csv
import io
import math
from collections.abc import Sequence
from itertools import groupby
from typing import Any, NamedTuple

from launcher.bench.base import Case, Figure
from launcher.bench.published import Published

WIDTH, HEIGHT = 64, 14
LEAST_POINTS = 3
SIMULATED, PUBLISHED = "*", "o"


class Line(NamedTuple):
    """A figure of a case on chips of an architecture, and its published row, if there is one."""

    architecture: str
    case: Case
    figure: Figure
    published: Published | None

    @property
    def known(self) -> float | None:
        """The published value."""
        return self.published.value if self.published else None

    @property
    def error(self) -> float | None:
        """Simulated over published, less 1."""
        return self.figure.value / self.known - 1 if self.known else None

    @property
    def title(self) -> str:
        """The table that it stands in."""
        figure = self.figure
        columns = "".join(f", {name} {value}" for name, value in self.case.columns().items() if value is not None)
        return f"{figure.test}: {figure.statistic} in {figure.metric}{columns}"

    def document(self) -> dict[str, Any]:
        """Its fields by column; those of the case are the bench's own."""
        figure, row = self.figure, self.published
        return {
            "arch": self.architecture,
            "test": figure.test,
            **self.case.columns(),
            "bytes": figure.nbytes,
            "metric": figure.metric,
            "statistic": figure.statistic,
            "simulated": figure.meant,
            "published": self.known,
            "error": self.error,
            "id": row.id if row else None,
        }


def csv_text(lines: Sequence[Line]) -> str:
    """Lines as CSV."""
    text = io.StringIO()
    documents = [line.document() for line in lines]
    columns = dict.fromkeys(name for document in documents for name in document)
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(documents)
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
    by_case: dict[tuple[object, ...], list[Line]] = {}
    for line in lines:
        figure = line.figure
        if figure.metric == "GB/s":
            others = (item for item in line.case.columns().items() if item[0] != "channels")
            by_case.setdefault((figure.test, *others, figure.nbytes), []).append(line)
    rows = [max(each, key=lambda line: line.figure.value) for each in by_case.values() if len(each) > 1]
    if not rows:
        return ""
    texts = ["", "the number of channels that gives most", f"{'bytes':>10} {'GB/s':>8} {'channels':>9}  test"]
    texts += [
        f"{figure.nbytes:>10} {figure.value:>8.2f} {case.channels:>9}  {figure.test}" for _, case, figure, _ in rows
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
    return figure.test, figure.statistic, figure.metric, *line.case.columns().values(), figure.nbytes


def _plot(points: Sequence[Line]) -> str:
    most = max(max(line.figure.value, line.known or 0) for line in points) or 1
    least_size, most_size = (math.log2(end(line.figure.nbytes for line in points)) for end in (min, max))
    grid = [[" "] * WIDTH for _ in range(HEIGHT)]

    def put(nbytes: int, value: float, mark: str) -> None:
        x = round((math.log2(nbytes) - least_size) / (most_size - least_size) * (WIDTH - 1))
        y = round(value / most * (HEIGHT - 1))
        grid[HEIGHT - 1 - y][x] = mark

    for line in points:
        if line.known is not None:
            put(line.figure.nbytes, line.known, PUBLISHED)
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
        known = [(p.figure.nbytes, p.known) for p in points if p.known is not None]
        if known:
            axis.plot(*zip(*known, strict=True), "o", label="published")
        axis.set_ylim(bottom=0)
        axis.legend()
    figure.tight_layout()
    return figure
