"""Text below the table about where the time went: from counters for every run, and from ``--explain``."""

import re
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
from msgspec.structs import replace

from launcher.result.usage import ENDED
from sipsim.core.units import format_exact_time_ps, format_time_ps
from sipsim.fabric.flows import BUSY
from sipsim.records.explanation import Explanation, PhaseTime, TimePart, WhatIf

Document = dict[str, Any]
_SHARING = re.compile(r"sharing sip(\d+)\.(.*)")
MOST_LINKS = 8
MOST_PARTS = 12
MOST_PHASES = 16
LEAST_SHOWN = 0.9
"""If the rows take less than this fraction of the run's time, a line states the fraction."""
MOST_CHANGES = 8
USUAL = ("load", "store", "math", "send", "recv")
"""Built-in commands that kernels wait for, in the order of columns; columns of users' commands follow."""
MOST_WAITS = 3
"""The most commands in the short line about waits of kernels."""
BUSBW = "busbw = algbw x {factor:.4g}: what each rank must send at least in any algorithm; not the traffic of a link"


def notes(document: Document, start: str = "", unshown: str = "") -> Iterator[str]:
    """Yield the long form of the lines about the last row, or about the whole run if there are no counters per row.

    ``start``: text about the state in which rows begin. ``unshown``: text about effects that the model leaves out.
    """
    rows, whole = document["runs"], document["whole_run"]
    yield from _busbw(rows)
    yield from _launch(rows, start)
    yield from unusual(document)
    yield from _busy(rows, whole, unshown)
    if whole is not None:
        yield from (f"the whole run: {line}" for line in _usage_lines(whole))
    elif rows and rows[-1]["links"] is not None:
        yield from (f"{_of_row(rows)}{line}" for line in _usage_lines(rows[-1]))
    found = document["explain"][-1] if document["explain"] else None
    if found is not None:
        yield from _explanation_lines(msgspec.convert(found, Explanation))
        if whole is not None:
            yield from _links(whole["links"], "in the whole run")
        elif rows[-1]["links"] is not None:
            yield from _links(rows[-1]["links"], "in an iteration")
        yield from _rest(rows, max(rank["sim_end_ps"] for rank in document["ranks"]))


def brief(document: Document, start: str = "", unshown: str = "") -> Iterator[str]:
    """Yield the short form of :func:`notes`: what bounds the run, and the share of the launch."""
    rows, whole = document["runs"], document["whole_run"]
    if whole is not None:
        yield from (f"the whole run: {line}" for line in _brief_usage(whole, unshown))
    elif rows and rows[-1]["links"] is not None:
        yield from (f"{_of_row(rows)}{line}" for line in _brief_usage(rows[-1], unshown))
    yield from _launch(rows, start)


def unusual(document: Document) -> Iterator[str]:
    """Yield lines about late starts of kernels and outages of links; most runs have no such lines."""
    yield from _late(document.get("launches", []))
    yield from _outages(document.get("ranks", []))


def engine_lines(document: Document) -> Iterator[str]:
    """Yield a line about the use of PE_GEMM in the last row, or in the whole run, if PE_GEMM ran."""
    rows, whole = document["runs"], document["whole_run"]
    row = whole if whole is not None else rows[-1] if rows else None
    if row is not None and row.get("engines") is not None:
        yield f"{_of_row(rows) if whole is None else 'the whole run: '}{_engines(row['engines'])}"


def _brief_usage(row: Document, unshown: str) -> Iterator[str]:
    """Yield a line with the longest waits of kernels, an HBM stack near its limit, and the busiest link and edge."""
    parts = []
    if row["kernels"]:
        waits = [(share, name) for name, share in row["kernel_time"].items() if name != ENDED]
        most = sorted(waits, key=lambda each: -each[0])[:MOST_WAITS]
        parts += [f"time of {_kernels(row)}: {', '.join(f'{_percent(share)} {name}' for share, name in most)}"]
    parts += _stack(row)
    if row["busiest_link"] is not None:
        parts.append(f"busiest link {row['busiest_link']} {_percent(row['busiest_link_utilisation'])}")
    if row["busiest_edge"] is not None:
        busy = _percent(row["busiest_edge_utilisation"])
        parts.append(f"busiest edge inside a SIP {row['busiest_edge']} {busy}")
    if parts:
        yield f"{'; '.join(parts)}{_beyond(_busiest([row])[0], unshown)}"


def _busy(rows: list[Document], whole: Document | None, unshown: str) -> Iterator[str]:
    """Yield a line about the busiest edge or link of all rows, if so busy that the model leaves out effects."""
    share, name, row = _busiest([row for row in rows if row["links"] is not None] if whole is None else [whole])
    if beyond := _beyond(share, unshown):
        of_row = "the whole run: " if whole is not None else _of_row(rows, row)
        yield f"{of_row}{name} is busy {_percent(share)}{beyond}"


def _busiest(rows: list[Document]) -> tuple[float, str, Document]:
    """Return utilisation (0 to 1), name and row of the busiest edge or link of all ``rows``."""
    parts = [(row, part) for row in rows for part in ("link", "edge") if row[f"busiest_{part}"] is not None]
    found = ((row[f"busiest_{part}_utilisation"], f"{part} {row[f'busiest_{part}']}", row) for row, part in parts)
    return max(found, key=lambda each: each[0], default=(0, "", {}))


def _beyond(share: float, unshown: str) -> str:
    """Return text about effects that times leave out at an edge with utilisation ``share``; empty below ``BUSY``."""
    return f": at {100 * BUSY:.0f} % or more, times leave out {unshown}" if unshown and share >= BUSY else ""


def _kernels(row: Document) -> str:
    return "the kernel" if row["kernels"] == 1 else f"{row['kernels']} kernels"


def _of_row(rows: list[Document], row: Document | None = None) -> str:
    """Return the start of a line about ``row``, by default the last row; empty if there is only one row."""
    if len(rows) == 1:
        return ""
    several, row = len({each.get("algorithm") for each in rows}) > 1, row or rows[-1]
    return f"{row['algorithm']}, size {row['bytes']}: " if several else f"size {row['bytes']}: "


def _usage_lines(row: Document) -> Iterator[str]:
    """Yield the lines of the long form that come from counters."""
    if row["busiest_link"] is not None:
        busiest = next(each for each in row["links"] if each["name"] == row["busiest_link"])
        equal = sum(each["busy_ps"] == busiest["busy_ps"] for each in row["links"]) - 1
        others = f"; {equal} other link{'s' if equal > 1 else ''} as busy" if equal else ""
        yield f"busiest link {_link(busiest)}{others}"
    if row["busiest_edge"] is not None:
        yield f"busiest edge inside a SIP {row['busiest_edge']}, busy {_percent(row['busiest_edge_utilisation'])}"
    yield from _stack(row)
    if row["kernels"]:
        shares = [f"{_percent(share)} {name}" for name, share in row["kernel_time"].items()]
        yield f"time of {_kernels(row)}: {', '.join(shares)}"
    if row["engines"] is not None:
        yield _engines(row["engines"])


def _stack(row: Document) -> Iterator[str]:
    """Yield a line with rate and limit of a row's HBM stack, if the row has the key ``stack``."""
    if (stack := row.get("stack")) is not None:
        of_stack = f"{stack['GBps']:.0f} of {stack['published_GBps']:.0f} GB/s"
        yield f"HBM of {stack['name']} {of_stack}: {stack['bound']} [{', '.join(stack['keys'])}]"


def _engines(engines: Document) -> str:
    """Return the line about PE_GEMM: the fraction of busy time, and the time of commands by activity."""
    of_pes = "one PE" if engines["pes"] == 1 else f"{engines['pes']} PEs"
    busy, peak = (_percent(share) for share in (engines["busy"]["PE_GEMM"], engines["peak"]))
    parts = ", ".join(f"{_percent(share)} {name}" for name, share in engines["commands"].items())
    of_time = f"busy {busy} of the kernels' time, {peak} of the peak rate"
    return f"PE_GEMM of {of_pes}: {of_time}; time of its commands: {parts}"


def _explanation_lines(explanation: Explanation) -> Iterator[str]:
    """Yield the lines of ``--explain`` about a row."""
    total_ps = explanation.until_ps - explanation.since_ps
    yield f"where the time went: {format_time_ps(total_ps)}, to the end of {explanation.where}, by its critical path"
    yield from _conclusion(explanation, total_ps)
    yield ""
    yield from _phases(explanation.phases, total_ps)
    yield ""
    yield from _parts(explanation.parts, total_ps)
    yield ""
    yield from _changes(explanation.what_if, total_ps)
    yield ""


def _busbw(rows: list[Document]) -> Iterator[str]:
    if rows and rows[-1]["busbw_GBps"]:
        yield BUSBW.format(factor=rows[-1]["busbw_GBps"] / rows[-1]["algbw_GBps"])


def _launch(rows: list[Document], start: str) -> Iterator[str]:
    """Yield a line with the launch's share of a row's time, and the state in which the row begins."""
    parts = [start] if start else []
    if rows and rows[-1].get("launch_ns"):
        row = rows[-1]
        of_row, share = _of_row(rows), _percent(row["launch_ns"] / row["time_ns"])
        launch_us = row["launch_ns"] / 1000
        parts.insert(0, f"{of_row}of the time {launch_us:.3f} us ({share}) launch, before and after all kernels")
    if parts:
        yield "; ".join(parts)


def _late(launches: list[Document]) -> Iterator[str]:
    late = [each for each in launches if each["late_by_ns"]]
    if late:
        by = format_time_ps(round(1000 * max(each["late_by_ns"] for each in late)))
        affected = f"{len(late)} of {len(launches)} launches" if len(launches) > 1 else "the launch"
        what = f"kernels of {affected} started up to {by} after the common start, as their commands met other traffic"
        yield f"{what}; data are right, times include the delay; a larger launch.start_margin_ns prevents it"


def _outages(ranks: list[Document]) -> Iterator[str]:
    """Yield a line about each outage of a link's direction: begin, duration, and the packets that were sent again."""
    outages = [each for rank in ranks for each in rank.get("outages", [])]
    for each in outages[:MOST_LINKS]:
        what = f"link {each['link']} down at {format_exact_time_ps(each['at_ps'])}"
        if each["at_ps"] > max(rank["sim_end_ps"] for rank in ranks):
            yield f"{what}: after the last event of the run"
            continue
        again, ps = "nothing sent again", ""
        if each["resent_packets"]:
            packets = "1 packet" if each["resent_packets"] == 1 else f"{each['resent_packets']} packets"
            again = f"{packets} sent again ({each['duplicate_packets']} had arrived)"
            ps = f": {_bytes(each['resent_bytes'])}, {format_time_ps(each['resent_ps'])} of the link's time"
        yield f"{what} for {format_exact_time_ps(each['for_ps'])}, nothing lost; {again}{ps}"
    more = len(outages) - MOST_LINKS
    if more > 0:
        yield f"{more} more outage{'s' if more > 1 else ''} (--json)"


def _conclusion(explanation: Explanation, total_ps: int) -> Iterator[str]:
    merged: dict[str, int] = {}
    for part in explanation.parts:
        name = _kind(part)
        merged[name] = merged.get(name, 0) + part.ps
    first = sorted(merged.items(), key=lambda each: -each[1])[:3]
    yield "the time is bound by " + ", ".join(f"{name} ({_percent(ps / total_ps)})" for name, ps in first)
    measured = [each for each in explanation.what_if if each.rerun_saved_ps is not None]
    best = max(measured or explanation.what_if, key=_saved, default=None)
    if best is not None and _saved(best) > 0:
        how = "measured in a rerun" if best.rerun_saved_ps is not None else "by the critical path"
        yield f"change first {best.name}: {_percent(_saved(best) / total_ps)} less time, {how}"


def _kind(part: TimePart) -> str:
    if part.part.startswith("sharing link "):
        return "sharing links, whose bytes wait for each other"
    return "sharing edges inside SIPs" if part.part.startswith("sharing ") else part.part.removeprefix("credits: ")


def _phases(phases: Iterable[PhaseTime], total_ps: int) -> Iterator[str]:
    phases = list(phases)
    found = dict.fromkeys(name for each in phases for name in each.kernels_ps)
    names = [name for name in USUAL if name in found] + [name for name in found if name not in USUAL]
    width = max([len(each.phase) for each in phases] + [5])
    yield f"{'phase':<{width}}  {'on the path':>20}  of its kernels' time: {' '.join(f'{name:>7}' for name in names)}"
    for each in phases[:MOST_PHASES]:
        of_phase = sum(each.kernels_ps.values()) or 1
        shares = " ".join(f"{_percent(each.kernels_ps.get(name, 0) / of_phase):>7}" for name in names)
        path = f"{format_time_ps(each.path_ps):>12} {_percent(each.path_ps / total_ps):>7}"
        yield f"{each.phase:<{width}}  {path:>20}  {'':>21} {shares}"
    if len(phases) > MOST_PHASES:
        yield f"{len(phases) - MOST_PHASES} more phases (--json)"


def _parts(parts: Iterable[TimePart], total_ps: int) -> Iterator[str]:
    parts = _folded(parts)
    yield f"{'on the critical path':>20}  part"
    for part in parts[:MOST_PARTS]:
        source = f"  [{', '.join(part.keys)}]" if part.keys else ""
        yield f"{format_time_ps(part.ps):>12} {_percent(part.ps / total_ps):>7}  {part.part}{source}"
    rest = parts[MOST_PARTS:]
    if rest:
        rest_ps = sum(part.ps for part in rest)
        yield f"{format_time_ps(rest_ps):>12} {_percent(rest_ps / total_ps):>7}  {len(rest)} smaller parts (--json)"


def _folded(parts: Iterable[TimePart]) -> list[TimePart]:
    """Merge parts of equal names, and parts of corresponding edges of several SIPs; return the largest part first."""
    found: dict[str, TimePart] = {}
    sips: dict[str, set[str]] = {}
    for part in parts:
        shared = _SHARING.fullmatch(part.part)
        name = part.part if shared is None else f"sharing {shared[2]}"
        if shared is not None:
            sips.setdefault(name, set()).add(shared[1])
        known = found.get(name, TimePart(name, (), 0))
        found[name] = TimePart(name, tuple(dict.fromkeys((*known.keys, *part.keys))), known.ps + part.ps)
    for name, numbers in sips.items():
        found[name] = replace(found[name], part=f"{name}, on {_sips(numbers)}")
    return sorted(found.values(), key=lambda each: (-each.ps, each.part))


def _sips(numbers: set[str]) -> str:
    return f"SIP {min(numbers)}" if len(numbers) == 1 else f"{len(numbers)} SIPs"


def _changes(changes: tuple[WhatIf, ...], total_ps: int) -> Iterator[str]:
    yield "what if a cost were halved (a bandwidth doubled): time saved by the critical path, if the order of events"
    yield "stays; time saved in a rerun; the change"
    for each in changes[:MOST_CHANGES]:
        rerun = "-" if each.rerun_saved_ps is None else _percent(each.rerun_saved_ps / total_ps)
        flags = " ".join(f"--set {setting}" for setting in each.settings)
        yield f"{_percent(each.saved_ps / total_ps):>8} {rerun:>8}  {flags}"


def _rest(rows: list[Document], end_ps: int) -> Iterator[str]:
    """Yield lines about the part of the run that the explanation of the last row does not cover."""
    if len(rows) > 1:
        yield f"the lines above explain the last of {len(rows)} rows; --json explains all rows"
    rows_ps = sum(row["time_ns"] * 1000 * row["iters"] for row in rows)
    if rows and rows_ps < LEAST_SHOWN * end_ps:
        yield f"rows take {_percent(rows_ps / end_ps)} of the run's {format_time_ps(end_ps)}"


def _links(links: list[Document], where: str) -> Iterator[str]:
    used = sorted((each for each in links if each["wire_bytes"]), key=lambda each: (-each["wire_bytes"], each["name"]))
    if links:
        yield f"traffic of each link {where}:"
    for each in used[:MOST_LINKS]:
        yield f"  {_link(each)}"
    if len(used) > MOST_LINKS:
        yield f"  {len(used) - MOST_LINKS} more links, none with more traffic (--csv-links, --json)"
    if len(used) < len(links):
        idle = len(links) - len(used)
        yield f"  {idle} link{'s' if idle > 1 else ''}: no traffic"


def _link(link: Document) -> str:
    framing = link["wire_bytes"] - link["payload_bytes"] - link["credit_bytes"]
    of_credits = f"{_bytes(link['credit_bytes'])} credits + " if link["credit_bytes"] else ""
    carried = f"{_bytes(link['payload_bytes'])} payload + {of_credits}{_bytes(framing)} framing"
    return f"{link['name']}: {carried}, busy {_percent(link['utilisation'])}"


def _saved(change: WhatIf) -> int:
    return change.saved_ps if change.rerun_saved_ps is None else change.rerun_saved_ps


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def _bytes(nbytes: float) -> str:
    return f"{nbytes:,.0f} B"
