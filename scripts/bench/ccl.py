"""Sweeps of a collective over sizes, algorithms side by side, as nccl-tests has them: table, CSV and plot.

One run of ``ahbm-launch`` has all algorithms and sizes; ``auto`` is a second one. The plot is busbw over size on
logarithmic axes, a line an algorithm, and the bound of the system as a broken line.
"""

import argparse
import csv
import math
import shlex
from html import escape
from pathlib import Path
from typing import Any

from launcher.options import parse
from launcher.run.prepare import prepare
from sipsim.chips.ahbm.host.builtin_job import tasks_of
from sipsim.collectives.semantics import COLLECTIVES
from sipsim.core.units import PS_PER_US

from ._lower_bounds import bandwidth_bound
from .kit import Flag, Table, launch

FLAGS = {
    "collective": Flag("all_reduce", "all_reduce", "what is swept"),
    "sips": Flag(4, 4, "SIPs of the system"),
    "topology": Flag("torus_2d", "torus_2d", "their topology"),
    "shape": Flag("", "", "its shape"),
    "first": Flag("1K", "1K", "smallest size"),
    "last": Flag("1M", "16K", "largest size"),
    "factor": Flag(4, 4, "factor between sizes"),
    "warmup": Flag(1, 1, "iterations before the timed one"),
    "algorithm": Flag("all", "all", "names, or all that suit"),
    "flags": Flag("", "", "more flags of ahbm-launch, as one word"),
    "csv": Flag("", "", "a file for the rows"),
    "plot": Flag("", "", "an SVG file for busbw over size"),
}
WIDTH, HEIGHT, MARGIN = 820, 480, 64
COLOURS = ("#1f77b4", "#ff7f0e", "#2ca02c", "#d62728", "#9467bd", "#8c564b", "#e377c2", "#7f7f7f", "#bcbd22", "#17becf")
MESSAGE_BYTES = 16384
"""Of the bound: framing is counted for messages of a slot of the default entries."""
Row = dict[str, Any]


def bounds_of(flags: list[str]) -> dict[int, float]:
    """By size the busbw of the bound, in GB/s."""
    prepared = prepare(parse(flags))
    job, plan, found = prepared.job, prepared.plan, {}
    collective = COLLECTIVES.get(job.collective)
    for made in (tasks[0] for tasks in tasks_of(job, collective, plan)):
        task = made.task
        nbytes = max(collective.elements(task.n_elem, task.size)) * task.itemsize
        bound_ps = bandwidth_bound(task, MESSAGE_BYTES).ps
        if bound_ps:
            found[nbytes] = float(nbytes * 1000 / bound_ps * collective.busbw_factor(task.size))
    return found


def flags_of(chosen: argparse.Namespace) -> list[str]:
    """The flags of both runs."""
    flags = ["--collective", chosen.collective, "--sips", str(chosen.sips), "--topology", chosen.topology]
    flags += ["--shape", chosen.shape] if chosen.shape else []
    flags += ["-b", chosen.first, "-e", chosen.last, "-f", str(chosen.factor), "-w", str(chosen.warmup), "-n", "1"]
    return [*flags, "--engine", "inproc", "--no-verify-data", *shlex.split(chosen.flags)]


def show(rows: list[Row], bounds: dict[int, float], title: str) -> None:
    """A line a size, a column an algorithm: time and busbw."""
    names = list(dict.fromkeys(row["name"] for row in rows))
    heads = (f"{name[:18]}:>19" for name in names)
    table = Table("bytes:10", "bound:9.2f", *heads, title=f"{title}\ntime in us, busbw in GB/s")
    for nbytes in dict.fromkeys(row["bytes"] for row in rows):
        cells = {row["name"]: f"{row['time_us']:.2f} {row['busbw_GBps']:.2f}" for row in rows if row["bytes"] == nbytes}
        table.row(nbytes, bounds.get(nbytes), *map(cells.get, names))


def plot(rows: list[Row], bounds: dict[int, float], title: str) -> str:
    """Busbw over size as SVG, both axes logarithmic."""
    xs = [math.log2(row["bytes"]) for row in rows]
    ys = [math.log10(max(row["busbw_GBps"], 1e-3)) for row in rows] + [math.log10(each) for each in bounds.values()]
    left, right, low, high = min(xs), max(max(xs), min(xs) + 1), math.floor(min(ys)), math.ceil(max(ys))

    def point(nbytes: float, busbw: float) -> str:
        x = MARGIN + (math.log2(nbytes) - left) / (right - left) * (WIDTH - 4 * MARGIN)
        y = HEIGHT - MARGIN - (math.log10(max(busbw, 1e-3)) - low) / max(high - low, 1) * (HEIGHT - 2 * MARGIN)
        return f"{x:.1f},{y:.1f}"

    def line(points: list[str], colour: str, dashes: str = "") -> str:
        return f'<polyline fill="none" stroke="{colour}" stroke-width="1.5" {dashes} points="{" ".join(points)}"/>'

    parts = [f'<text x="{MARGIN}" y="24" font-size="14">{escape(title)}</text>']
    for power in range(low, high + 1):
        x, y = point(2**left, 10.0**power).split(",")
        parts.append(line([point(2**left, 10.0**power), point(2**right, 10.0**power)], "#ddd"))
        parts.append(f'<text x="{float(x) - 8}" y="{y}" text-anchor="end">{10.0**power:g}</text>')
    for nbytes in dict.fromkeys(row["bytes"] for row in rows):
        x, _ = point(nbytes, 1.0).split(",")
        parts.append(f'<text x="{x}" y="{HEIGHT - MARGIN + 18}" text-anchor="middle">{size_text(nbytes)}</text>')
    for index, name in enumerate(dict.fromkeys(row["name"] for row in rows)):
        colour, y = COLOURS[index % len(COLOURS)], MARGIN + 16 * index
        parts.append(line([point(row["bytes"], row["busbw_GBps"]) for row in rows if row["name"] == name], colour))
        parts.append(f'<text x="{WIDTH - 3 * MARGIN + 12}" y="{y}" fill="{colour}">{escape(name)}</text>')
    if bounds:
        parts.append(line([point(*each) for each in sorted(bounds.items())], "#000", 'stroke-dasharray="5 4"'))
        parts.append(f'<text x="{WIDTH - 3 * MARGIN + 12}" y="{MARGIN - 16}">bound (broken line)</text>')
    parts.append(f'<text x="{WIDTH / 3}" y="{HEIGHT - 16}">bytes; busbw in GB/s on the left</text>')
    frame = f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" font-family="sans-serif"'
    ground = '<rect width="100%" height="100%" fill="white"/>'
    return "\n".join([f'{frame} font-size="11">', ground, *parts, "</svg>\n"])


def size_text(nbytes: int) -> str:
    """A size with a binary unit where it is a whole number of these."""
    for unit, letter in ((2**20, "M"), (2**10, "K")):
        if nbytes % unit == 0:
            return f"{nbytes // unit}{letter}"
    return str(nbytes)


def measure(chosen: argparse.Namespace) -> dict[str, Any]:
    """Run, print, write the other files."""
    flags = flags_of(chosen)
    rows = [
        {
            "name": "auto" if algorithm == "auto" else run["algorithm"],
            "algorithm": run["algorithm"],
            "bytes": run["bytes"],
            "time_us": round(run["time_ps"]) / PS_PER_US,
            "algbw_GBps": run["algbw_GBps"],
            "busbw_GBps": run["busbw_GBps"],
        }
        for algorithm in (chosen.algorithm, "auto")
        for run in launch(*flags, "--algorithm", algorithm)["runs"]
    ]
    bounds = bounds_of([*flags, "--algorithm", "auto"])
    title = f"{chosen.collective}, {chosen.sips} SIPs, {chosen.topology}"
    show(rows, bounds, title)
    if chosen.csv:
        with open(chosen.csv, "w", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)
    if chosen.plot:
        Path(chosen.plot).write_text(plot(rows, bounds, title))
    return {"rows": rows, "bound_busbw_GBps": bounds, "flags": flags}
