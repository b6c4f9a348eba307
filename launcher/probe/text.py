"""Text of ``ahbm-probe`` from its documents: every term, a screen of sums by kind, a sweep's curve, or hardware."""

from collections.abc import Mapping
from typing import Any

Document = Mapping[str, Any]
BAR = 40
TITLES = {"raw_dma": "raw DMA, a write and its acknowledgement", "pair": "tl.send to tl.recv's return"}
NOT_SIMULATED = "not simulated: a DMA write stays on its SIP"
A_LEAST = "the sum is a lower bound: a memory or another component adds time that no sum contains"
NO_TIMES = "area, delays and power are estimates of the record; they change no simulated time and no result"
FIXED = "does not scale"
MOST_COLUMNS = 100


def terms(document: Document) -> str:
    """Return text with one line per term, and sums below."""
    lines = heading(document, f"{document['bytes']} B {ends(document)}")
    for key, title in TITLES.items():
        lines += ["", f"{title:<74}{'ns':>12}", *_sum_lines(document[key])]
    lines += [*_late_credit(document), *(f"  {line}" for line in _tlb_misses(document))]
    return "\n".join([*lines, "", _line("send/recv pair less raw DMA", document["overhead_ps"])])


def short(document: Document) -> str:
    """Return text with sums by kind of term, shares, and simulated times; at most 24 lines of 100 columns."""
    raw, pair = document["raw_dma"], document["pair"]
    kinds = list(dict.fromkeys([*pair["kinds"], *raw["kinds"]]))
    lines = heading(document, f"{document['bytes']} B {ends(document)}")
    lines += [_clipped(f"# way: {document['way']}"), f"{'':22}{'raw DMA write':>20}{'send/recv pair':>24}"]
    lines.append(f"{'':22}{'ns':>12}{'share':>8}{'ns':>16}{'share':>8}")
    lines += [f"{kind:<22}{_share(raw, kind, 12)}{_share(pair, kind, 16)}".rstrip() for kind in kinds]
    for name, key in (("sum", "sum_ps"), ("simulated", "simulated_ps")):
        lines.append(f"{name:<22}{_ns(raw[key], 12)}{'':8}{_ns(pair[key], 16)}".rstrip())
    if raw["simulated_ps"] is None:
        lines.append(f"# the raw DMA is {NOT_SIMULATED}")
    if _is_a_least(raw) or _is_a_least(pair):
        lines.append(f"# {A_LEAST}")
    lines += [f"# {line.strip()}" for line in (*_late_credit(document), *_tlb_misses(document))]
    return "\n".join([*lines, f"# send/recv pair less raw DMA: {document['overhead_ps'] / 1000:.3f} ns"])


def sweep(document: Document) -> str:
    """Return text with one line and one bar per size, and with both rates of the sweep and their bounds."""
    slot, points = document["slot_size"], document["sizes"]
    lines = heading(document, f"bandwidth {ends(document)}, simulated")
    lines += [
        f"#{'size':>11}{'messages':>10}{'time':>14}{'bandwidth':>11}{'one after another':>19}",
        f"#{'(B)':>11}{'':>10}{'(ns)':>14}{'(GB/s)':>11}{'(GB/s)':>19}",
    ]
    most = max(max(point["GBps"], point.get("interval_GBps", 0.0)) for point in points)
    lines += [_point_line(point, most) for point in points]
    lines.append(f"# bars: {BAR} characters are {most:.3f} GB/s; # bandwidth, - one after another")
    if points[-1]["bytes"] > slot:
        lines.append(f"# above {slot} B (slot_size) a size is sent as messages of {slot} B, one right after the other")
    if "one_message" in document:
        lines += [*_model_lines(document["one_message"], slot), *_rate_lines(document["one_after_another"])]
    return "\n".join(lines)


def hardware(document: Document) -> str:
    """Return text with the registers, the rings and the estimates of PE_IPCQ, and its steps."""
    registers, files, region = document["registers"], document["files"], document["region_bytes"]
    place, directions = ".".join(map(str, document["pe"])), document["directions"]
    built = files[-1]["directions"]
    lines = heading(document, f"hardware of PE_IPCQ, algorithm {document['algorithm']}")
    lines += [
        f"# PE {place} has the most directions, {len(directions)}: {', '.join(directions) or 'none'}",
        "",
        f"{'registers of a direction':<26}{'bits':>6}",
        *(f"  {each['name']:<24}{each['bits']:>6}  {each['meaning']}" for each in registers),
        f"  {len(registers)} registers{'':<12}{sum(each['bits'] for each in registers):>6}  "
        f"{document['register_bytes']} B",
        "",
        f"{'of a PE':<16}{'directions':>10}{'registers':>12}{'rings':>24}{'bytes':>10}{'of region':>11}{'of TCM':>9}",
        *(_file_line(each) for each in files),
        f"  the region has {region} B ({document['region']}), the TCM {document['tcm_bytes']} B",
        "",
        f"{'area, 2 nm':<38}{'installed':>16}{'mm2':>10}{f'for {built}':>16}{'mm2':>10}",
        *(_module_line(each) for each in document["modules"]),
        "",
        f"{f'delay, 2 nm, for {built} directions':<38}{'ns':>6}{'margin':>9}",
        *(_delay_line(each) for each in document["delays"]),
        f"  margins to a clock period of {document['clock_ps'] / 1000:g} ns (pe_gemm.clock_GHz)",
        f"power: some {document['active_mW']:g} mW while sending or receiving, else leakage; ADR-0023 D21, {FIXED}",
        f"# {NO_TIMES}",
        "",
        f"{'steps (ADR-0023 D17)':<28}{'cycles':>8}{'charged, ns':>13}",
        *(_step_line(each) for each in document["steps"]),
    ]
    return "\n".join(lines)


def _file_line(row: Document) -> str:
    count, rings = row["directions"], f"{row['directions']} x {row['n_slots']} x {row['slot_size']} B"
    shares = f"{row['of_region']:>11.2%}{row['of_tcm']:>9.2%}"
    late = "  do not fit" if row["of_region"] > 1 else ""
    return f"  {row['of']:<14}{count:>10}{row['register_bytes']:>10} B{rings:>24}{row['ring_bytes']:>10}{shares}{late}"


def _module_line(row: Document) -> str:
    unit = "" if " " in row["unit"] else f" {row['unit']}"
    counts = [f"{row[key]}{unit}" for key in ("count", "built_count")]
    areas = [f"{row[key]:.5f}" for key in ("mm2", "built_mm2")]
    source = row["source"] if row["scales"] else f"{row['source']}, {FIXED}"
    return f"  {row['module']:<36}{counts[0]:>16}{areas[0]:>10}{counts[1]:>16}{areas[1]:>10}  {source}"


def _delay_line(row: Document) -> str:
    return f"  {row['path']:<36}{row['ns']:>6}{row['margin']:>8.1f}x  {row['source']}, {FIXED}"


def _step_line(row: Document) -> str:
    cycles = "-".join(map(str, dict.fromkeys(row["cycles"])))
    return f"  {row['step']:<26}{cycles:>8}{row['charged_ps'] / 1000:>13g}  {row['charged_by']}"


def heading(document: Document, what: str) -> list[str]:
    """Return the two lines at the top of every output."""
    return [
        f"# ahbm-probe {document['version']}: {what}",
        f"# {document['system']}; rings in {document['buffer_kind']}, credits by {document['credit_return_mode']}",
    ]


def ends(document: Document) -> str:
    """Return text with the sending and the receiving PE."""
    src, dst = (".".join(map(str, document[end])) for end in ("from", "to"))
    return f"from PE {src} to PE {dst} (SIP, cube, PE)"


def _late_credit(document: Document) -> list[str]:
    mode = document["credit_return_mode"]
    return [] if mode == "fast_path" else [f"  with {mode} recv does not wait until the credit has arrived"]


def _tlb_misses(document: Document) -> list[str]:
    misses = document.get("tlb_misses")
    if misses is None:
        return []
    line = f"PE_MMU: sums assume that TLBs hold all pages; a miss adds {misses['walk_ps'] / 1000:.3f} ns to a command"
    if not misses["walks"]:
        return [line]
    walks, simulated = (f"{misses[key] / 1000:.3f} ns" for key in ("sum_ps", "simulated_ps"))
    return [line, f"PE_MMU: misses before the first send: {misses['walks']}, {walks}; simulated {simulated}"]


def _sum_lines(result: Document) -> list[str]:
    lines, part = [], ""
    for term in result["terms"]:
        lines.append(_line(f"  {term['part'] if term['part'] != part else '':<17}{term['what']}", term["ps"]))
        part = term["part"]
    parts = dict.fromkeys(term["part"] for term in result["terms"])
    lines += [_line(f"  of which {part}", sum(t["ps"] for t in result["terms"] if t["part"] == part)) for part in parts]
    lines.append(_line("  sum", result["sum_ps"]))
    if result["simulated_ps"] is None:
        return [*lines, f"  {NOT_SIMULATED}"]
    lines.append(_line("  simulated", result["simulated_ps"]))
    return [*lines, f"  {A_LEAST}"] if _is_a_least(result) else lines


def _is_a_least(result: Document) -> bool:
    return result["simulated_ps"] is not None and result["simulated_ps"] > result["sum_ps"]


def _line(what: str, ps: int) -> str:
    return f"{what:<74}{ps / 1000:>12.3f}"


def _share(result: Document, kind: str, width: int) -> str:
    ps = result["kinds"].get(kind)
    return f"{'-':>{width}}{'':8}" if ps is None else f"{_ns(ps, width)}{ps / result['sum_ps']:>8.1%}"


def _ns(ps: int | None, width: int) -> str:
    return f"{'-' if ps is None else f'{ps / 1000:.3f}':>{width}}"


def _clipped(text: str) -> str:
    return text if len(text) <= MOST_COLUMNS else f"{text[: MOST_COLUMNS - 4]} ..."


def _point_line(point: Document, most: float) -> str:
    rate, onward = point["GBps"], point.get("interval_GBps")
    bar = "#" * round(rate / most * BAR)
    bar = bar if onward is None else bar.ljust(round(onward / most * BAR), "-")
    figures = f"{point['bytes']:>12}{point['messages']:>10}{_ns(point['time_ps'], 14)}{rate:>11.3f}"
    return f"{figures}{'' if onward is None else f'{onward:.3f}':>19}  {bar}".rstrip()


def _model_lines(model: Document, slot: int) -> list[str]:
    half = f"half of it at n_1/2 = {model['half_bytes']} B{', more than a slot' if model['half_bytes'] > slot else ''}"
    lines = [
        f"# one message: t0 + n / r_inf; t0 = {model['t0_ps'] / 1000:.3f} ns, "
        f"r_inf = {model['r_inf_GBps']:.3f} GB/s, {half}",
        f"#   r_inf is bounded by {model['bounded_by']}",
    ]
    if model["off_ps"]:
        lines.append(f"#   simulated times differ from t0 and the drain by up to {model['off_ps'] / 1000:.3f} ns")
    return lines


def _rate_lines(rate: Document) -> list[str]:
    interval = f"a message of {rate['bytes']} B every {rate['interval_ps'] / 1000:.3f} ns"
    lines = [
        f"# one after another: {rate['GBps']:.3f} GB/s, {interval}",
        f"#   bounded by {rate['bounded_by']}",
    ]
    if rate["off_ps"]:
        lines.append(f"#   of the time between messages {rate['off_ps'] / 1000:.3f} ns have another cause")
    others = [each for each in rate["bounds"] if each["what"] != rate["bounded_by"]]
    return [*lines, *(f"#   else {each['ps'] / 1000:.3f} ns by {each['what']}" for each in others)]
