"""``ahbm-probe`` says what one transfer costs, by its terms and simulated, or those of all pairs or of all sizes."""

import argparse
import csv
import io
import json
import shutil
import sys
from collections.abc import Callable, Sequence
from operator import itemgetter

from launcher.commands.command import run_command, write_file
from launcher.isolation.destination import STANDARD_OUTPUT
from launcher.probe import text as probe_text
from launcher.probe.command.options import MatrixOf, check_most, check_sizes, parse_probe
from launcher.probe.heat_map import heat_map
from launcher.probe.heat_map.heat_map import Grid
from launcher.probe.heat_map.heat_map_svg import heat_map_svg
from launcher.probe.simulate.run import ProbeRun
from launcher.probe.simulate.sweep import MOST_MESSAGES, sweep
from launcher.result.document import check_files
from launcher.result.fields.fields import (
    CheckedPair,
    Heading,
    MatrixDocument,
    MatrixFacts,
    MatrixRow,
    ProbeDocument,
    SizePoint,
    SweepDocument,
    TermRow,
    TlbMisses,
    TransferSum,
)
from launcher.run.prepare.prepare import overrides_of, resolve
from launcher.run.preparing import preparing
from launcher.supervise.request import RunSettings
from sipsim import VERSION
from sipsim.chips.ahbm.address import LEAD_PE, PePlace
from sipsim.chips.ahbm.chip import Ahbm
from sipsim.chips.ahbm.collectives.rules import check_overrides_of_job
from sipsim.chips.ahbm.costs.probe.matrix import Matrix, cube_matrix, sip_matrix
from sipsim.chips.ahbm.costs.probe.probe import Probe, ProbePlan, Ps, Term
from sipsim.chips.api.chip import kind_of
from sipsim.config.schema.model import Resolved
from sipsim.core.errors import ConfigError
from sipsim.core.fields import columns_of

MOST_SIPS = 128
"""Of a matrix: their pairs take some seconds."""


def main(argv: list[str] | None = None) -> int:
    """Run the command line; returns 0, or 2 with one line for a mistake."""
    return run_command("ahbm-probe", lambda: _run(sys.argv[1:] if argv is None else argv))


def _run(argv: list[str]) -> None:
    chosen = parse_probe(argv)
    check_files(
        {"--json": chosen.json, "--csv": chosen.csv, "--svg": chosen.svg},
        {"--config": chosen.config, "--ccl": chosen.ccl},
    )
    _answer(chosen)


def _answer(chosen: argparse.Namespace) -> None:
    if chosen.matrix is not None:
        _show_matrix(chosen)
        return
    if chosen.sizes is not None:
        swept = probe_sweep(chosen)
        write_file(chosen.csv, _csv(SizePoint, swept["sizes"]))
        _show(chosen, swept, probe_text.sweep)
        return
    _show(chosen, probe(chosen), probe_text.short if chosen.short else probe_text.terms)


def _show(
    chosen: argparse.Namespace, document: probe_text.Document, rendered: Callable[[probe_text.Document], str]
) -> None:
    write_file(chosen.json, json.dumps(document, indent=1) + "\n")
    if STANDARD_OUTPUT not in (chosen.json, chosen.csv):
        print(rendered(document))


def probe(chosen: argparse.Namespace) -> ProbeDocument:
    """Both sums, their terms, and the simulated time of each.

    Raises:
        ConfigError: for invalid PEs, sizes or settings.
    """
    check_sizes("--bytes", [chosen.bytes])
    plan = ProbePlan(_resolved(chosen), PePlace(*chosen.src), PePlace(*chosen.dst))
    costs = Probe(plan, chosen.bytes)
    raw, pair = costs.raw(), costs.pair()
    ran = ProbeRun(plan, [chosen.bytes])
    document: ProbeDocument = {
        **_heading(plan, costs.credit_mode),  # type: ignore[typeddict-item]
        "from": list(chosen.src),
        "to": list(chosen.dst),
        "bytes": chosen.bytes,
        "way": _way(costs),
        "raw_dma": _sum(raw, ran.raw_ps(chosen.bytes)),
        "pair": _sum(pair, ran.received_ps[0]),
        "overhead_ps": _total(pair) - _total(raw),
    }
    walk_ps, walks = costs.walk_ps(), costs.first_walks()
    if walk_ps is not None:
        sums_ps = walks * walk_ps, ran.walked_ps
        document["tlb_misses"] = TlbMisses(walk_ps=walk_ps, walks=walks, sum_ps=sums_ps[0], simulated_ps=sums_ps[1])
    return document


def probe_sweep(chosen: argparse.Namespace) -> SweepDocument:
    """The bandwidth of each size, simulated, and what bounds it.

    Raises:
        ConfigError: for invalid PEs, sizes or settings.
    """
    check_sizes("--sweep-bytes", chosen.sizes)
    plan = ProbePlan(_resolved(chosen), PePlace(*chosen.src), PePlace(*chosen.dst))
    check_most(chosen.sizes, plan.ipcq.slot_size, MOST_MESSAGES)
    return {
        **_heading(plan, Probe(plan, 1).credit_mode),
        "from": list(chosen.src),
        "to": list(chosen.dst),
        **sweep(plan, chosen.sizes),
    }


def probe_matrix(chosen: argparse.Namespace) -> tuple[MatrixDocument, list[Matrix]]:
    """The pair's time for all pairs, and of the fastest and the slowest the simulated one too.

    Raises:
        ConfigError: for a system without pairs, or too many, invalid sizes or settings.
    """
    check_sizes("--bytes", [chosen.bytes])
    resolved = _resolved(chosen)
    plan = ProbePlan(resolved, *_any_pair(chosen.matrix, resolved))
    matrices = _matrices(plan, chosen.bytes, chosen.matrix)
    pairs = [pair for matrix in matrices for pair in matrix.pairs()]
    extremes = (min(pairs, key=itemgetter(0)), max(pairs, key=itemgetter(0)))
    checked = [_checked(resolved, chosen.bytes, *pair) for pair in dict.fromkeys(extremes)]
    document: MatrixDocument = {
        **_heading(plan, plan.ipcq.credit_return_mode),
        "bytes": chosen.bytes,
        "matrix": chosen.matrix.what,
        "matrices": [_facts(matrix) for matrix in matrices],
        "checked": checked,
    }
    return document, matrices


def _any_pair(matrix: MatrixOf, resolved: Resolved) -> tuple[PePlace, PePlace]:
    """Two PEs of the matrix; all errors that concern it are found here."""
    n_sips = resolved.topology.system.sips.count
    mesh = resolved.topology.sip.cube_mesh
    if matrix.what == "sips":
        if not 2 <= n_sips <= MOST_SIPS:
            what = f"{n_sips} SIPs; it needs 2 to {MOST_SIPS}" if n_sips > 1 else "one SIP has no pairs; give --sips 2"
            raise ConfigError(f"--matrix sips: {what}, or --matrix cubes")
        return PePlace(0, 0, LEAD_PE), PePlace(1, 0, LEAD_PE)
    first, second = matrix.sips
    if n_sips == 1 and matrix == MatrixOf("cubes"):
        if mesh.w * mesh.h < 2:
            raise ConfigError("--matrix cubes: one SIP of one cube has no pairs; give --sips 2 or more cubes")
        return PePlace(0, 0, LEAD_PE), PePlace(0, 1, LEAD_PE)
    for sip in matrix.sips:
        if sip >= n_sips:
            raise ConfigError(f"--matrix cubes:{first},{second}: there is no SIP {sip}; SIPs are 0 to {n_sips - 1}")
    return PePlace(first, 0, LEAD_PE), PePlace(second, 0, LEAD_PE)


def _matrices(plan: ProbePlan, nbytes: int, matrix: MatrixOf) -> list[Matrix]:
    if matrix.what == "sips":
        return [sip_matrix(plan, nbytes)]
    first, second = matrix.sips
    among = [cube_matrix(plan, nbytes, first, first)] if plan.system.n_cubes > 1 else []
    return among if plan.system.n_sips == 1 else [*among, cube_matrix(plan, nbytes, first, second)]


def _checked(resolved: Resolved, nbytes: int, ps: Ps, src: PePlace, dst: PePlace) -> CheckedPair:
    simulated_ps = ProbeRun(ProbePlan(resolved, src, dst), [nbytes]).received_ps[0]
    return {"from": list(src), "to": list(dst), "ps": ps, "simulated_ps": simulated_ps}


def _show_matrix(chosen: argparse.Namespace) -> None:
    document, matrices = probe_matrix(chosen)
    grids = [_grid(chosen.matrix, matrix) for matrix in matrices]
    head = probe_text.heading(document, f"tl.send to tl.recv's return, {chosen.bytes} B, between lead PEs")
    write_file(chosen.json, json.dumps(document, indent=1) + "\n")
    rows: list[MatrixRow] = [
        {"from": _name(src), "to": _name(dst), "ps": ps} for matrix in matrices for ps, src, dst in matrix.pairs()
    ]
    write_file(chosen.csv, _csv(MatrixRow, rows))
    write_file(chosen.svg, heat_map_svg(" ".join(line.removeprefix("# ") for line in head), grids))
    if STANDARD_OUTPUT in (chosen.json, chosen.csv, chosen.svg):
        return
    print("\n".join(head))
    heat_map.show(heat_map.heat_map(grids, shutil.get_terminal_size().columns))
    names = ("least", "most") if len(document["checked"]) > 1 else ("all pairs",)
    print("\n".join(map(_check_line, names, document["checked"])))


def _facts(matrix: Matrix) -> MatrixFacts:
    rows, columns = ([list(place) for place in axis] for axis in (matrix.rows, matrix.columns))
    return {"title": matrix.title, "rows": rows, "columns": columns, "ps": matrix.ps}


def _grid(of: MatrixOf, matrix: Matrix) -> Grid:
    rows, columns = (
        [str(place.sip if of.what == "sips" else place.cube) for place in axis]
        for axis in (matrix.rows, matrix.columns)
    )
    return Grid(matrix.title, rows, columns, [[None if ps is None else ps / 1000 for ps in row] for row in matrix.ps])


def _check_line(name: str, checked: CheckedPair) -> str:
    src, dst = _name(checked["from"]), _name(checked["to"])
    by_sum, simulated = (f"{ps / 1000:.3f} ns" for ps in (checked["ps"], checked["simulated_ps"]))
    line = f"# {name}: {by_sum} from PE {src} to PE {dst}; simulated {simulated}"
    return line if checked["ps"] == checked["simulated_ps"] else f"{line}: a part adds what no sum contains"


def _resolved(chosen: argparse.Namespace) -> Resolved:
    with preparing(RunSettings(), None):
        resolved = resolve(chosen)
    if not isinstance(kind_of(resolved), Ahbm):
        raise ConfigError(
            f"system.chip = {resolved.topology.system.chip}: ahbm-probe sends between PEs of chip ahbm only"
        )
    check_overrides_of_job(resolved, overrides_of(chosen), [resolved.ccl.defaults.algorithm])
    return resolved


def _heading(plan: ProbePlan, credit_mode: str) -> Heading:
    knobs = plan.ipcq
    return {
        "version": VERSION,
        "system": plan.system.describe(),
        "buffer_kind": knobs.buffer_kind,
        "credit_return_mode": credit_mode,
        "hw_strict": knobs.hw_strict,
    }


def _way(costs: Probe) -> str:
    """The SIPs and links of the route, or its cubes when it stays in one."""
    *leaving, (last, route) = costs.forward
    if leaving:
        links = ", ".join(costs.edge_name(sip, piece.edges[-1]).removeprefix("link ") for sip, piece in leaving)
        sips = " > ".join(str(sip) for sip, _ in costs.forward)
        return f"SIP {sips} by {'links' if len(leaving) > 1 else 'link'} {links}"
    cubes = dict.fromkeys(node.cube for node in (route.start, *(edge.dst for edge in route.edges)))
    return f"cube {' > '.join(map(str, cubes))} of SIP {last}"


def _sum(terms: list[Term], simulated_ps: Ps | None) -> TransferSum:
    listed: list[TermRow] = [{"part": term.part, "kind": term.kind, "what": term.what, "ps": term.ps} for term in terms]
    return {"terms": listed, "kinds": _kinds(terms), "sum_ps": _total(terms), "simulated_ps": simulated_ps}


def _kinds(terms: list[Term]) -> dict[str, Ps]:
    """Sums by kind of term; the way back (credit, acknowledgement) is a kind of its own."""
    kinds: dict[str, Ps] = {}
    for term in terms:
        kind = term.kind if term.part in ("send", "data") else term.part
        kinds[kind] = kinds.get(kind, 0) + term.ps
    return kinds


def _total(terms: list[Term]) -> Ps:
    return sum(term.ps for term in terms)


def _name(place: PePlace | list[int]) -> str:
    return ".".join(map(str, place))


def _csv(record: type, rows: Sequence[probe_text.Document]) -> str:
    """Rows as CSV; the columns are the fields of ``record``."""
    text = io.StringIO()
    writer = csv.DictWriter(text, columns_of(record), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


if __name__ == "__main__":
    sys.exit(main())
