"""Simulated figures of a bench beside published ones, as tables, documents and plots."""

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


class ResultRow(NamedTuple):
    """Figure of a case on chips of an architecture. ``published``: the published row, or None."""

    architecture: str
    case: Case
    figure: Figure
    published: Published | None

    @property
    def published_value(self) -> float | None:
        """The published value; None without one."""
        return self.published.value if self.published else None

    @property
    def error(self) -> float | None:
        """Relative error: simulated / published - 1; None without a published value."""
        return self.figure.value / self.published_value - 1 if self.published_value else None

    @property
    def title(self) -> str:
        """The title of the row's table."""
        figure = self.figure
        columns = "".join(f", {name} {value}" for name, value in self.case.columns().items() if value is not None)
        return f"{figure.test}: {figure.statistic} in {figure.metric}{columns}"

    def document(self) -> dict[str, Any]:
        """Return the row's values by column name, for CSV and JSON. The case's columns depend on the bench."""
        figure, row = self.figure, self.published
        return {
            "arch": self.architecture,
            "test": figure.test,
            **self.case.columns(),
            "bytes": figure.nbytes,
            "metric": figure.metric,
            "statistic": figure.statistic,
            "simulated": figure.meant,
            "published": self.published_value,
            "error": self.error,
            "id": row.id if row else None,
        }


def csv_text(rows: Sequence[ResultRow]) -> str:
    """Return the rows as CSV text, with a header."""
    text = io.StringIO()
    documents = [row.document() for row in rows]
    columns = dict.fromkeys(name for document in documents for name in document)
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(documents)
    return text.getvalue()


def tables(rows: Sequence[ResultRow]) -> str:
    """Return the printed tables: one per case and statistic, with one line per size."""
    texts = []
    for title, group in groupby(sorted(rows, key=_sort_key), lambda row: row.title):
        texts += ["", title, f"{'bytes':>10} {'simulated':>11} {'published':>11} {'error':>8}  row"]
        for row in group:
            figure, known, error = row.figure, row.published, row.error
            cells = ["-", "-", ""] if known is None else [f"{known.value:g}", f"{100 * (error or 0):+.1f}%", known.id]
            line = f"{figure.nbytes:>10} {figure.value:>11.2f} {cells[0]:>11} {cells[1]:>8}  {cells[2]}"
            texts.append(f"{line} {figure.note}".rstrip())
    return "\n".join(texts)


def best_channels(rows: Sequence[ResultRow]) -> str:
    """Return a table of the fastest number of channels by size; empty if no case has several numbers of channels."""
    by_case: dict[tuple[object, ...], list[ResultRow]] = {}
    for row in rows:
        figure = row.figure
        if figure.metric == "GB/s":
            others = (item for item in row.case.columns().items() if item[0] != "channels")
            by_case.setdefault((figure.test, *others, figure.nbytes), []).append(row)
    best = [max(each, key=lambda row: row.figure.value) for each in by_case.values() if len(each) > 1]
    if not best:
        return ""
    texts = ["", "number of channels with the highest bandwidth", f"{'bytes':>10} {'GB/s':>8} {'channels':>9}  test"]
    texts += [
        f"{figure.nbytes:>10} {figure.value:>8.2f} {case.channels:>9}  {figure.test}" for _, case, figure, _ in best
    ]
    return "\n".join(texts)


def plots(rows: Sequence[ResultRow]) -> str:
    """Return a text plot of value over size (logarithmic) per case and statistic that has three or more sizes."""
    texts = []
    for title, group in groupby(sorted(rows, key=_sort_key), lambda row: row.title):
        points = list(group)
        if len(points) >= LEAST_POINTS:
            texts += ["", f"{title} ({SIMULATED} simulated, {PUBLISHED} published)", _plot(points)]
    return "\n".join(texts)


def _sort_key(row: ResultRow) -> tuple[object, ...]:
    figure = row.figure
    return figure.test, figure.statistic, figure.metric, *row.case.columns().values(), figure.nbytes


def _plot(points: Sequence[ResultRow]) -> str:
    most = max(max(point.figure.value, point.published_value or 0) for point in points) or 1
    least_size, most_size = (math.log2(extreme(point.figure.nbytes for point in points)) for extreme in (min, max))
    grid = [[" "] * WIDTH for _ in range(HEIGHT)]

    def put(nbytes: int, value: float, mark: str) -> None:
        x = round((math.log2(nbytes) - least_size) / (most_size - least_size) * (WIDTH - 1))
        y = round(value / most * (HEIGHT - 1))
        grid[HEIGHT - 1 - y][x] = mark

    for point in points:
        if point.published_value is not None:
            put(point.figure.nbytes, point.published_value, PUBLISHED)
    for point in points:
        put(point.figure.nbytes, point.figure.value, SIMULATED)
    names = [f"{most:.4g}", *[""] * (HEIGHT - 2), "0"]
    left, right = (str(extreme(point.figure.nbytes for point in points)) for extreme in (min, max))
    rows = [f"{name:>8} |{''.join(row)}".rstrip() for name, row in zip(names, grid, strict=True)]
    return "\n".join([*rows, f"{'':>8} +{'-' * WIDTH}", f"{'':>9} {left}{right:>{WIDTH - len(left)}} B"])


def picture(rows: Sequence[ResultRow], pyplot: Any) -> Any:
    """Return a matplotlib figure with one plot per case and statistic. ``pyplot``: module ``matplotlib.pyplot``."""
    groups = [list(group) for _, group in groupby(sorted(rows, key=_sort_key), lambda row: row.title)]
    drawing, axes = pyplot.subplots(len(groups), 1, figsize=(8, 4 * len(groups)), squeeze=False)
    for (axis,), points in zip(axes, groups, strict=True):
        axis.set_title(points[0].title, fontsize=9)
        axis.set_xscale("log", base=2)
        axis.set_xlabel("bytes")
        axis.set_ylabel(points[0].figure.metric)
        axis.plot([p.figure.nbytes for p in points], [p.figure.value for p in points], "*-", label="simulated")
        published = [(p.figure.nbytes, p.published_value) for p in points if p.published_value is not None]
        if published:
            axis.plot(*zip(*published, strict=True), "o", label="published")
        axis.set_ylim(bottom=0)
        axis.legend()
    drawing.tight_layout()
    return drawing
