"""Command ``ahbm-probe``: the time of one transfer, as a sum of terms and simulated, or of all pairs or sizes."""

import argparse
import csv
import io
import json
import shutil
import sys
from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any, NamedTuple

import msgspec

from launcher import flag_types
from launcher.commands import run_command, write_file
from launcher.isolation import STANDARD_OUTPUT
from launcher.options import SYSTEM, USAGE_EXIT, Options, Parser, ParserExit, Version, add_flags, closing, json_file
from launcher.probe import heat_map
from launcher.probe import text as probe_text
from launcher.probe.hardware import hardware
from launcher.probe.heat_map import Grid
from launcher.probe.simulate import MOST_MESSAGES, ProbeRun, sweep
from launcher.result.document import check_files, write_refusal
from launcher.result.fields import (
    CheckedPair,
    Heading,
    MatrixDocument,
    MatrixFacts,
    MatrixRow,
    ProbeDocument,
    SizePoint,
    TermRow,
    TlbMisses,
    TransferSum,
)
from launcher.run.prepare import overrides_of, resolve
from launcher.run.preparing import preparing
from sipsim.chips.ahbm.address import LEAD_PE, PePlace
from sipsim.chips.ahbm.chip import Ahbm
from sipsim.chips.ahbm.collectives.rules import check_overrides_of_job
from sipsim.chips.ahbm.costs.prices import Price, Term, by_place, sum_ps
from sipsim.chips.ahbm.costs.probe import Matrix, Probe, ProbePlan, Ps, cube_matrix, sip_matrix
from sipsim.chips.ahbm.plan import Plan
from sipsim.chips.api.chip import kind_of
from sipsim.config.schema import Resolved
from sipsim.core.errors import ConfigError
from sipsim.core.fields import columns_of
from sipsim.core.units import format_size

DEFAULT_BYTES = 4096
ELEMENT_BYTES = 2
DEFAULT_SWEEP = "64:64K"
EXAMPLES = (
    "ahbm-probe --from 0.0.0 --to 1.3.0 --bytes 4096",
    "ahbm-probe --from 0.0.0 --to 1.3.0 --sweep-bytes 1K:64K",
    "ahbm-probe --matrix --sips 9 --topology torus_2d",
)
USAGE = """ahbm-probe --from SIP.CUBE.PE --to SIP.CUBE.PE [--short | --sweep-bytes [MIN:MAX]] [options]
       ahbm-probe --matrix [sips | cubes[:SIP,SIP]] [options]
       ahbm-probe --hardware [options]"""


class MatrixOf(NamedTuple):
    """Value of ``--matrix``. ``what``: "sips" or "cubes". ``sips``: for "cubes", the SIPs of rows and of columns."""

    what: str
    sips: tuple[int, int] = (0, 1)


def parse_probe(argv: list[str]) -> argparse.Namespace:
    """Parse the command line of ``ahbm-probe``: fields for the system, as in ``Options``, and for the requested output.

    ``src`` and ``dst`` are None only if ``matrix`` is given; ``sizes`` (``--sweep-bytes``) and ``matrix`` are None
    unless given.

    Raises:
        ParserExit: for ``--help``, ``--version`` and every mistake.
    """
    parser = Parser(
        prog="ahbm-probe",
        usage=USAGE,
        description="Prints the time of one transfer, term by term: a raw DMA write, and the send/recv pair of the "
        "same bytes; or the time of all pairs, or of all sizes; or the registers and the estimated hardware of "
        "PE_IPCQ. The default of a flag is in parentheses.",
        allow_abbrev=False,
        closing=closing("docs/probe.md", *EXAMPLES),
    )
    add_flags(parser, SYSTEM)
    _add_transfer(parser.add_argument_group("the transfer"))
    _add_output(parser.add_argument_group("the output"))
    values = parser.parse_args(argv)
    problem = _problem(values)
    if problem is not None:
        raise ParserExit(f"{parser.prog}: {problem}", USAGE_EXIT)
    values.settings, values.algorithm = tuple(values.settings), None
    values.bytes = DEFAULT_BYTES if values.bytes is None else values.bytes
    return values


def _add_transfer(group: "argparse._ArgumentGroup") -> None:
    group.add_argument("--from", type=flag_types.place, dest="src", metavar="SIP.CUBE.PE", help="the sending PE")
    group.add_argument("--to", type=flag_types.place, dest="dst", metavar="SIP.CUBE.PE", help="the receiving PE")
    group.add_argument("--bytes", type=flag_types.size, metavar="B", help=f"size of the message ({DEFAULT_BYTES})")
    group.add_argument(
        "--matrix",
        nargs="?",
        const="sips",
        type=_matrix_of,
        metavar="WHAT",
        help="the pair's time between the lead PEs of all SIPs (sips), or of all cubes of SIPs 0 and 1 (cubes), or of "
        "other SIPs, such as cubes:2,5 (none; sips without a value)",
    )
    group.add_argument(
        "--sweep-bytes",
        nargs="?",
        const=DEFAULT_SWEEP,
        type=_sizes,
        dest="sizes",
        metavar="MIN:MAX",
        help=f"simulated bandwidth by size, which doubles at each step (none; {DEFAULT_SWEEP} without a value)",
    )
    group.add_argument(
        "--hardware",
        action="store_true",
        help="registers of PE_IPCQ, the TCM's share of rings, and the estimates of ADR-0023; no transfer",
    )


def _add_output(group: "argparse._ArgumentGroup") -> None:
    group.add_argument("--short", action="store_true", help="sums by kind of term, on one screen")
    group.add_argument("--json", type=flag_types.output, metavar="FILE", help="write all figures")
    group.add_argument(
        "--csv", type=flag_types.output, metavar="FILE", help="write the figures of --matrix or --sweep-bytes"
    )
    group.add_argument("--version", action=Version, nargs=0, help="print the version")


def _problem(values: argparse.Namespace) -> str | None:
    """Return an error message if flags are missing or contradict each other; else None."""
    is_matrix, is_sweep = values.matrix is not None, values.sizes is not None
    modes = {
        "--matrix": is_matrix,
        "--sweep-bytes": is_sweep,
        "--hardware": values.hardware,
        "--short": values.short,
    }
    chosen = [flag for flag, is_chosen in modes.items() if is_chosen]
    if len(chosen) > 1:
        return f"give one of {' and '.join(chosen)}: each selects another output"
    ends = {"--from": values.src, "--to": values.dst}
    if values.hardware:
        unused = {**ends, "--bytes": values.bytes, "--csv": values.csv}
        given = [flag for flag, value in unused.items() if value is not None]
        return f"{given[0]}: --hardware shows no transfer; leave {' and '.join(given)} out" if given else None
    if is_matrix:
        given = [flag for flag, place in ends.items() if place is not None]
        return f"{given[0]}: --matrix shows all pairs; leave {' and '.join(given)} out" if given else None
    missing = [flag for flag, place in ends.items() if place is None]
    if missing:
        return f"the following arguments are required: {', '.join(missing)}"
    if is_sweep and values.bytes is not None:
        return "--bytes: --sweep-bytes gives the sizes; leave --bytes out"
    if values.csv is not None and not is_sweep:
        return "--csv: is for --matrix and --sweep-bytes; use --json here"
    return None


def _matrix_of(text: str) -> MatrixOf:
    what, colon, sips = text.partition(":")
    numbers = sips.split(",") if colon else ["0", "1"]
    is_valid = (what == "cubes" or (what == "sips" and not colon)) and len(numbers) == 2
    if not is_valid or not all(number.isascii() and number.isdigit() and len(number) < 10 for number in numbers):
        raise argparse.ArgumentTypeError(f"{text!r} must be sips, cubes, or cubes:SIP,SIP such as cubes:2,5")
    first, second = map(int, numbers)
    if first == second:
        raise argparse.ArgumentTypeError(f"{text!r}: the same SIP twice; name two, such as cubes:2,5")
    return MatrixOf(what, (first, second))


def _sizes(text: str) -> list[int]:
    """Parse MIN:MAX, and return MIN, 2 MIN, 4 MIN and so on below MAX, and MAX, in bytes."""
    least, colon, most = text.partition(":")
    if not colon:
        raise argparse.ArgumentTypeError(f"{text!r} is not a range of sizes; write MIN:MAX, such as {DEFAULT_SWEEP}")
    size, last = flag_types.size(least), flag_types.size(most)
    if size > last:
        raise argparse.ArgumentTypeError(
            f"{text!r}: {least} is more than {most}; write MIN:MAX, such as {DEFAULT_SWEEP}"
        )
    sizes = []
    while size < last:
        sizes.append(size)
        size *= 2
    return [*sizes, last]


def check_sizes(flag: str, sizes: list[int]) -> None:
    """Check that messages of ``sizes`` bytes contain whole elements.

    Raises:
        ConfigError: one line with the flag and the first bad size.
    """
    for size in sizes:
        if size % ELEMENT_BYTES:
            what = f"must be a multiple of {ELEMENT_BYTES} B, the size of an element"
            raise ConfigError(f"{flag} {size}: {what}")


def check_most(sizes: list[int], slot_size: int, most_messages: int) -> None:
    """Check that the largest size needs at most ``most_messages`` messages of ``slot_size`` bytes.

    Raises:
        ConfigError: one line with the largest allowed size.
    """
    if sizes[-1] > most_messages * slot_size:
        what = f"needs more than {most_messages} messages of {slot_size} B (slot_size)"
        raise ConfigError(f"--sweep-bytes {sizes[-1]}: {what}; give at most {format_size(most_messages * slot_size)}")


MOST_SIPS = 128
"""The most SIPs of a matrix: all pairs of so many SIPs take some seconds."""


def main(argv: list[str] | None = None) -> int:
    """Run the command line; return 0, or 2 after one line about a mistake."""
    return run_command("ahbm-probe", lambda: _run(sys.argv[1:] if argv is None else argv))


def _run(argv: list[str]) -> None:
    path = json_file(argv, has_script=False)
    try:
        chosen = parse_probe(argv)
        check_files({"--json": chosen.json, "--csv": chosen.csv}, {"--config": chosen.config, "--ccl": chosen.ccl})
        _answer(chosen)
    except (ParserExit, ConfigError) as error:
        if error.exit_code:
            write_refusal(path, argv, str(error).removeprefix("ahbm-probe: "))
        raise


def _answer(chosen: argparse.Namespace) -> None:
    if chosen.matrix is not None:
        _show_matrix(chosen)
        return
    if chosen.hardware:
        _show(chosen, probe_hardware(chosen), probe_text.hardware)
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


def probe(chosen: argparse.Namespace) -> dict[str, Any]:
    """Return the document of one transfer: terms, sums and simulated times of the raw DMA and of the send/recv pair.

    Raises:
        ConfigError: for invalid PEs, sizes or settings.
    """
    check_sizes("--bytes", [chosen.bytes])
    plan = ProbePlan(_resolved(chosen), PePlace(*chosen.src), PePlace(*chosen.dst))
    costs = Probe(plan, chosen.bytes)
    raw, pair = costs.raw(), costs.pair()
    ran = ProbeRun(plan, [chosen.bytes])
    document = ProbeDocument(
        **_heading(plan, costs.credit_mode),
        src=list(chosen.src),
        dst=list(chosen.dst),
        bytes=chosen.bytes,
        way=_route(costs),
        raw_dma=_sum(raw, ran.raw_ps(chosen.bytes)),
        pair=_sum(pair, ran.received_ps[0]),
        overhead_ps=sum_ps(pair) - sum_ps(raw),
    )
    walk_ps, walks = costs.walk_ps(), costs.first_walks()
    if walk_ps is not None:
        document.tlb_misses = TlbMisses(walk_ps, walks, walks * walk_ps, ran.walked_ps)
    return _plain(document)


def _plain(document: Heading) -> dict[str, Any]:
    plain: dict[str, Any] = msgspec.to_builtins(document)
    return plain


def probe_sweep(chosen: argparse.Namespace) -> dict[str, Any]:
    """Return the document of a sweep: the simulated bandwidth of each size, and the bounds of the rates.

    Raises:
        ConfigError: for invalid PEs, sizes or settings.
    """
    check_sizes("--sweep-bytes", chosen.sizes)
    plan = ProbePlan(_resolved(chosen), PePlace(*chosen.src), PePlace(*chosen.dst))
    check_most(chosen.sizes, plan.ipcq.slot_size, MOST_MESSAGES)
    heading = _heading(plan, Probe(plan, 1).credit_mode)
    return _plain(sweep(plan, chosen.sizes, **heading, src=list(chosen.src), dst=list(chosen.dst)))


def probe_hardware(chosen: argparse.Namespace) -> dict[str, Any]:
    """Return the document of PE_IPCQ's hardware for the configured algorithm's wiring.

    Raises:
        ConfigError: for invalid settings.
    """
    plan = Plan(_resolved(chosen))
    return _plain(hardware(plan, **_heading(plan, plan.ipcq.credit_return_mode)))


def probe_matrix(chosen: argparse.Namespace) -> tuple[dict[str, Any], list[Matrix]]:
    """Return the matrices, and their document, which adds the simulated times of the fastest and the slowest pair.

    Raises:
        ConfigError: for a system without pairs or with too many SIPs, for an invalid size or setting.
    """
    check_sizes("--bytes", [chosen.bytes])
    resolved = _resolved(chosen)
    plan = ProbePlan(resolved, *_any_pair(chosen.matrix, resolved))
    matrices = _matrices(plan, chosen.bytes, chosen.matrix)
    pairs = [pair for matrix in matrices for pair in matrix.pairs()]
    extremes = (min(pairs, key=itemgetter(0)), max(pairs, key=itemgetter(0)))
    checked = [_checked(resolved, chosen.bytes, *pair) for pair in dict.fromkeys(extremes)]
    document = MatrixDocument(
        **_heading(plan, plan.ipcq.credit_return_mode),
        bytes=chosen.bytes,
        matrix=chosen.matrix.what,
        matrices=[_facts(matrix) for matrix in matrices],
        checked=checked,
    )
    return _plain(document), matrices


def _any_pair(matrix: MatrixOf, resolved: Resolved) -> tuple[PePlace, PePlace]:
    """Return two PEs of the matrix; raise ConfigError if the system has no pair of SIPs or cubes for the matrix."""
    n_sips = resolved.topology.system.sips.count
    mesh = resolved.topology.sip.cube_mesh
    if matrix.what == "sips":
        if not 2 <= n_sips <= MOST_SIPS:
            what = f"{n_sips} SIPs are too many" if n_sips > 1 else "one SIP has no pairs"
            raise ConfigError(f"--matrix sips: {what}; give --sips 2 to {MOST_SIPS}, or --matrix cubes")
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
    return CheckedPair(list(src), list(dst), ps, simulated_ps)


def _show_matrix(chosen: argparse.Namespace) -> None:
    document, matrices = probe_matrix(chosen)
    grids = [_grid(chosen.matrix, matrix) for matrix in matrices]
    head = probe_text.heading(document, f"tl.send to tl.recv's return, {chosen.bytes} B, between lead PEs")
    write_file(chosen.json, json.dumps(document, indent=1) + "\n")
    rows = [MatrixRow(_name(src), _name(dst), ps) for matrix in matrices for ps, src, dst in matrix.pairs()]
    write_file(chosen.csv, _csv(MatrixRow, msgspec.to_builtins(rows)))
    if STANDARD_OUTPUT in (chosen.json, chosen.csv):
        return
    print("\n".join(head))
    heat_map.show(heat_map.heat_map(grids, shutil.get_terminal_size().columns))
    names = ("least", "most") if len(document["checked"]) > 1 else ("all pairs",)
    print("\n".join(map(_check_line, names, document["checked"])))


def _facts(matrix: Matrix) -> MatrixFacts:
    rows, columns = ([list(place) for place in axis] for axis in (matrix.rows, matrix.columns))
    return MatrixFacts(matrix.title, rows, columns, matrix.ps)


def _grid(of: MatrixOf, matrix: Matrix) -> Grid:
    rows, columns = (
        [str(place.sip if of.what == "sips" else place.cube) for place in axis]
        for axis in (matrix.rows, matrix.columns)
    )
    return Grid(matrix.title, rows, columns, [[None if ps is None else ps / 1000 for ps in row] for row in matrix.ps])


def _check_line(name: str, checked: dict[str, Any]) -> str:
    src, dst = _name(checked["from"]), _name(checked["to"])
    by_sum, simulated = (f"{ps / 1000:.3f} ns" for ps in (checked["ps"], checked["simulated_ps"]))
    line = f"# {name}: {by_sum} from PE {src} to PE {dst}; simulated {simulated}"
    return line if checked["ps"] == checked["simulated_ps"] else f"{line}: a component adds time that no sum contains"


def _resolved(chosen: argparse.Namespace) -> Resolved:
    with preparing(Options(), None):
        resolved = resolve(chosen)
    if not isinstance(kind_of(resolved), Ahbm):
        raise ConfigError(
            f"system.chip = {resolved.topology.system.chip}: ahbm-probe supports only chip ahbm; give --chip ahbm"
        )
    check_overrides_of_job(resolved, overrides_of(chosen), [resolved.ccl.defaults.algorithm])
    return resolved


def _heading(plan: Plan, credit_mode: str) -> dict[str, Any]:
    """Return the keys of :class:`~launcher.result.fields.Heading`."""
    knobs = plan.ipcq
    return {
        "system": plan.system.describe(),
        "buffer_kind": knobs.buffer_kind,
        "credit_return_mode": credit_mode,
        "hw_strict": knobs.hw_strict,
    }


def _route(costs: Probe) -> str:
    """Return the SIPs and links of the route as text, or the cubes if the route stays in one SIP."""
    *leaving, (last, route) = costs.forward
    if leaving:
        links = ", ".join(costs.edge_name(sip, piece.edges[-1]).removeprefix("link ") for sip, piece in leaving)
        sips = " > ".join(str(sip) for sip, _ in costs.forward)
        return f"SIP {sips} by {'links' if len(leaving) > 1 else 'link'} {links}"
    cubes = dict.fromkeys(node.cube for node in (route.start, *(edge.dst for edge in route.edges)))
    return f"cube {' > '.join(map(str, cubes))} of SIP {last}"


def _sum(price: Price, simulated_ps: Ps | None) -> TransferSum:
    terms = by_place(price)
    listed = [TermRow(term.step, term.kind, term.what, term.ps) for term in terms]
    return TransferSum(listed, _kinds(terms), sum_ps(price), simulated_ps)


def _kinds(terms: list[Term]) -> dict[str, Ps]:
    """Return sums in ps by kind of term; all terms of a credit, or of an acknowledgement, count as one kind."""
    kinds: dict[str, Ps] = {}
    for term in terms:
        kind = term.kind if term.step in ("send", "data") else term.step
        kinds[kind] = kinds.get(kind, 0) + term.ps
    return kinds


def _name(place: PePlace | list[int]) -> str:
    return ".".join(map(str, place))


def _csv(record: type, rows: Sequence[probe_text.Document]) -> str:
    """Return rows as CSV; the columns are the fields of ``record``."""
    text = io.StringIO()
    writer = csv.DictWriter(text, columns_of(record), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


if __name__ == "__main__":
    sys.exit(main())
