#!/usr/bin/env python3
"""Draws who sends to whom in a run, from its trace (`--trace-ccl`), as SVG: time downwards, a column a place.

A column is a SIP, or a PE where messages stay inside a SIP. An arrow goes from when a message was sent to when its
receive ended; messages of one direction that their PEs sent after as many receives are one arrow, with their bytes as
its tooltip. `--docs` runs every algorithm of `ccl.yaml` on a small system and writes `docs/pictures`. The same trace
gives the same bytes.
"""

import argparse
import csv
import sys
import tempfile
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple
from xml.sax.saxutils import escape

ROOT = Path(__file__).resolve().parents[1]
PICTURES = ROOT / "docs/pictures"
COLOURS = ("#1f5fa8", "#b3541e", "#2f7d4f", "#7a4a9e", "#8a6d00", "#a8325e", "#3f7f8c", "#555555")
LEFT, TOP, COLUMN, HEIGHT, FONT_PX = 64, 48, 110, 420, 11
TICKS = 8

SIPS = ["sip.cube_mesh={w: 1, h: 1}"]
CUBES = ["sip.cube_mesh={w: 2, h: 2}", "cube.pes=1"]
PES = ["sip.cube_mesh={w: 2, h: 1}", "cube.pes=2"]
GROUP = {"sips": 4, "collective": "all_reduce", "bytes": [1024], "layout": "1x1", "set": SIPS}
INTERCUBE = {"sips": 2, "n_elem": [128], "set": CUBES}
SYSTEMS: dict[str, dict[str, Any]] = {
    "intercube_hierarchical": {"n_elem": [4096]},
    "intercube_per_pe": {"n_elem": [4096], "set": PES},
    "intercube_per_pe_rows": {"n_elem": [4096], "set": PES},
    "intercube_pipelined": {"n_elem": [2048]},
    "line": {"topology": "mesh_2d_no_wrap", "shape": "4x1"},
    "multidim_ring": {"topology": "torus_2d", "shape": "2x2"},
}
"""Where an algorithm is drawn on another system, or with more elements, than the others of its kind."""
OTHERS: dict[str, dict[str, Any]] = {
    "direct_all_to_all": {**GROUP, "algorithm": "direct", "collective": "all_to_all"},
    "tree_broadcast": {**GROUP, "algorithm": "tree", "collective": "broadcast"},
}
"""Pictures of other collectives, by the names of their files."""

Place = tuple[int, int, int]
"""SIP, cube, PE."""


class Message(NamedTuple):
    """``step``: how many receives its PE had ended when it was sent."""

    src: Place
    dst: Place
    direction: str
    step: int
    sent_ps: int
    received_ps: int
    nbytes: int


class Arrow(NamedTuple):
    """Messages as one, between two columns."""

    src: int
    dst: int
    direction: str
    sent_ps: int
    received_ps: int
    nbytes: int
    count: int


def messages(lines: Iterable[dict[str, str]], run: str) -> list[Message]:
    """The messages of one collective of a trace, in order of sending.

    Raises:
        ValueError: when sends and receives of the trace do not fit each other.
    """
    found: list[Message] = []
    on_way: defaultdict[tuple[Place, Place], deque[Message]] = defaultdict(deque)
    ended: Counter[Place] = Counter()
    peers = _directions(rows := [line for line in lines if line["run"] == run])
    for line in rows:
        here = int(line["rank"]), int(line["cube"]), int(line["pe"])
        peer: Any = tuple(map(int, line["peer"].split(".")))
        t_ps, nbytes = int(line["t_ps"]), int(line["nbytes"])
        if line["op"] == "send":
            name = line["dir"].partition("#")[0]
            on_way[here, peer].append(Message(here, peer, name, ended[here], t_ps, 0, nbytes))
            continue
        ended[here] += 1
        waiting = on_way[peer, here]
        names = peers[peer, here]
        came_by = line["dir"].partition("#")[0]
        message = next((each for each in waiting if len(names) == 1 or opposite(each.direction) == came_by), None)
        if message is None:
            raise ValueError(f"line {line}: no message was sent there")
        waiting.remove(message)
        found.append(message._replace(received_ps=t_ps))
    return sorted(found, key=lambda message: (message.sent_ps, message.src, message.direction))


def _directions(rows: Iterable[dict[str, str]]) -> dict[tuple[Place, Place], set[str]]:
    """In which directions a PE sends to another one."""
    found: defaultdict[tuple[Place, Place], set[str]] = defaultdict(set)
    for line in rows:
        if line["op"] == "send":
            peer: Any = tuple(map(int, line["peer"].split(".")))
            found[(int(line["rank"]), int(line["cube"]), int(line["pe"])), peer].add(line["dir"].partition("#")[0])
    return found


def opposite(direction: str) -> str:
    """The direction by which a message arrives that two queue pairs between the same PEs could carry."""
    for one, other in (("next", "prev"), ("E", "W"), ("N", "S")):
        for a, b in ((one, other), (other, one)):
            prefix, found, suffix = direction.rpartition(a)
            if found and (not suffix or a in ("next", "prev")):
                return prefix + b + suffix
    return direction


def arrows(found: list[Message]) -> tuple[list[str], list[Arrow]]:
    """The names of the columns and the arrows between them."""
    inside = any(message.src[0] == message.dst[0] for message in found)
    place_of = (lambda place: place) if inside else (lambda place: place[:1])
    places = sorted({place_of(place) for message in found for place in (message.src, message.dst)})
    of_step: defaultdict[tuple[int, int, str, int], list[Message]] = defaultdict(list)
    for message in found:
        ends = (places.index(place_of(message.src)), places.index(place_of(message.dst)))
        of_step[(*ends, message.direction, message.step)].append(message)
    merged = [
        Arrow(
            *key[:3],
            min(each.sent_ps for each in some),
            max(each.received_ps for each in some),
            sum(each.nbytes for each in some),
            len(some),
        )
        for key, some in of_step.items()
    ]
    names = [".".join(map(str, place)) if inside else f"SIP {place[0]}" for place in places]
    return names, sorted(merged, key=lambda arrow: (arrow.sent_ps, arrow[:3]))


def svg(title: str, found: list[Message]) -> str:
    """One SVG document.

    Raises:
        ValueError: for no messages.
    """
    if not found:
        raise ValueError("the trace has no messages of this collective")
    columns, drawn = arrows(found)
    start = min(arrow.sent_ps for arrow in drawn)
    end = max(arrow.received_ps for arrow in drawn)
    colour_of = {name: COLOURS[at % len(COLOURS)] for at, name in enumerate(sorted({each.direction for each in drawn}))}
    width = max(LEFT + COLUMN * len(columns), LEFT + 7 * len(title))
    size = f'width="{width}" height="{TOP + HEIGHT + 56}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="{FONT_PX}">',
        f'<rect {size} fill="#ffffff"/>',
        *_markers(colour_of.values()),
        _text(8, 16, title),
        *_axes(columns, start, end),
        *(_arrow(arrow, start, end, colour_of[arrow.direction]) for arrow in drawn),
        *_legend(drawn, colour_of),
        "</svg>\n",
    ]
    return "\n".join(parts)


def _markers(colours: Iterable[str]) -> Iterator[str]:
    for colour in dict.fromkeys(colours):
        shape = f'<path d="M0,0 L8,3 L0,6 Z" fill="{colour}"/>'
        place = 'markerWidth="8" markerHeight="6" refX="8" refY="3" orient="auto"'
        yield f'<defs><marker id="{_id(colour)}" {place} markerUnits="userSpaceOnUse">{shape}</marker></defs>'


def _axes(columns: list[str], start: int, end: int) -> Iterator[str]:
    """A line for each column, and marks of time beside them."""
    for index, name in enumerate(columns):
        x = _x(index)
        yield f'<line x1="{x}" y1="{TOP}" x2="{x}" y2="{TOP + HEIGHT}" stroke="#999999"/>'
        yield _text(x, TOP - 8, name, "middle")
    step = _round_step((end - start) / TICKS)
    for ps in range(0, end - start + 1, step):
        y = TOP + HEIGHT * ps // (end - start)
        yield f'<line x1="{LEFT - 4}" y1="{y}" x2="{_x(len(columns) - 1)}" y2="{y}" stroke="#eeeeee"/>'
        yield _text(LEFT - 8, y + 4, f"{ps // 1000} ns", "end")


def _round_step(least: float) -> int:
    """The least 1, 2 or 5 times a power of ten ns that is not less, in ps."""
    power = 1000
    while True:
        for factor in (1, 2, 5):
            if factor * power >= least:
                return factor * power
        power *= 10


def _arrow(arrow: Arrow, start: int, end: int, colour: str) -> str:
    y1, y2 = (TOP + HEIGHT * (ps - start) // (end - start) for ps in (arrow.sent_ps, arrow.received_ps))
    what = f"{arrow.nbytes} B" + (f" in {arrow.count} messages" if arrow.count > 1 else "")
    said = escape(f"{arrow.direction}: {what}, {arrow.sent_ps - start} to {arrow.received_ps - start} ps")
    line = f'x1="{_x(arrow.src)}" y1="{y1}" x2="{_x(arrow.dst)}" y2="{y2}"'
    return f'<line {line} stroke="{colour}" marker-end="url(#{_id(colour)})"><title>{said}</title></line>'


def _legend(drawn: list[Arrow], colour_of: dict[str, str]) -> Iterator[str]:
    x, y = 8, TOP + HEIGHT + 24
    for name, colour in colour_of.items():
        yield f'<line x1="{x}" y1="{y - 4}" x2="{x + 20}" y2="{y - 4}" stroke="{colour}" stroke-width="2"/>'
        yield _text(x + 24, y, name)
        x += 40 + 7 * len(name)
    sizes = sorted({arrow.nbytes for arrow in drawn})
    each = f"{sizes[0]} B" if len(sizes) == 1 else f"{sizes[0]} to {sizes[-1]} B"
    yield _text(8, y + 20, f"{len(drawn)} arrows of {each}; sends leave at the arrow's start, its head is the receive")


def _x(column: int) -> int:
    return LEFT + COLUMN // 2 + COLUMN * column


def _id(colour: str) -> str:
    return f"head-{colour[1:]}"


def _text(x: int, y: int, text: str, anchor: str = "start") -> str:
    return f'<text x="{x}" y="{y}" text-anchor="{anchor}" fill="#222222">{escape(text)}</text>'


def drawing(trace: Path, title: str, run: str) -> str:
    """The picture of a trace file."""
    with trace.open(newline="") as file:
        return svg(title, messages(csv.DictReader(file), run))


def pictures() -> dict[str, dict[str, Any]]:
    """The runs of all pictures of the documents, by the names of their files: every algorithm of ``ccl.yaml``."""
    from sipsim.chips.ahbm.collectives.algorithm import Algorithm
    from sipsim.chips.config import load

    entries = load().ccl.algorithms
    runs = {}
    for name in sorted(entries):
        is_schedule = Algorithm(name, entries[name]).is_schedule
        runs[name] = {**(GROUP if is_schedule else INTERCUBE), **SYSTEMS.get(name, {}), "algorithm": name}
    return runs | OTHERS


def picture(flags: dict[str, Any]) -> str:
    """The picture of a run that it makes."""
    from launcher.api import run

    with tempfile.TemporaryDirectory(prefix="picture-") as folder:
        trace = Path(folder, "trace.csv")
        outcome = run(**flags, engine="inproc", trace_ccl=str(trace))
        if outcome.exit_code:
            raise SystemExit(f"draw_exchange: {flags}: {outcome.error}")
        row = outcome.runs[0]
        where = f"{outcome.document['sips']} SIPs, {outcome.document['topology']}"
        return drawing(trace, f"{row['algorithm']}: {row['collective']} of {row['bytes']} B per rank, {where}", "0")


def main() -> int:
    """Draw a trace, or all pictures of the documents."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trace-ccl", type=Path, metavar="FILE", help="the trace of a run")
    parser.add_argument("--run", default="0", metavar="N", help="which collective of it (0)")
    parser.add_argument("--title", default="", help="a line above the picture")
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="where to write it (standard output)")
    parser.add_argument("--docs", nargs="*", metavar="NAME", help="write docs/pictures, all or those named")
    chosen = parser.parse_args()
    if (chosen.docs is None) == (chosen.trace_ccl is None):
        parser.error("give --trace-ccl FILE or --docs")
    if chosen.docs is not None:
        every = pictures()
        for name in chosen.docs or every:
            PICTURES.joinpath(f"{name}.svg").write_text(picture(every[name]), encoding="utf-8")
        return 0
    try:
        text = drawing(chosen.trace_ccl, chosen.title, chosen.run)
    except (OSError, ValueError, KeyError) as error:
        raise SystemExit(f"draw_exchange: {chosen.trace_ccl}: {error}") from None
    if chosen.output is None:
        print(text, end="")
    else:
        chosen.output.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    sys.exit(main())
