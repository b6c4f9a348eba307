"""The flags of ``ahbm-probe``, and which of them suit each other."""

import argparse
from typing import NamedTuple

from launcher import flag_types
from launcher.options.options import USAGE_EXIT, Parser, Usage, Version, add_system, closing
from sipsim.core.errors import ConfigError
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
       ahbm-probe --matrix [sips | cubes[:SIP,SIP]] [options]"""


class MatrixOf(NamedTuple):
    """What the rows and columns are: all SIPs, or the cubes of two (those of the first among themselves, too)."""

    what: str
    sips: tuple[int, int] = (0, 1)


def parse_probe(argv: list[str]) -> argparse.Namespace:
    """The command line of ``ahbm-probe``: the system as ``Options`` has it, and what is asked about it.

    ``src`` and ``dst`` are None with ``matrix`` only; ``sizes`` (``--sweep-bytes``) and ``matrix`` are None if not
    asked for.

    Raises:
        Usage: for ``--help``, ``--version`` and every mistake.
    """
    parser = Parser(
        prog="ahbm-probe",
        usage=USAGE,
        description="What one transfer costs, term by term: a raw DMA write, and the send/recv pair of the same bytes. "
        "Or of all pairs, or of all sizes. The default of a flag is in parentheses.",
        allow_abbrev=False,
        closing=closing("docs/probe.md", *EXAMPLES),
    )
    add_system(parser.add_argument_group("the system"))
    _add_transfer(parser.add_argument_group("the transfer"))
    _add_output(parser.add_argument_group("the output"))
    values = parser.parse_args(argv)
    problem = _problem(values)
    if problem is not None:
        raise Usage(f"{parser.prog}: {problem}", USAGE_EXIT)
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
        help="the pair's time between the lead PEs of all SIPs (sips), or of all cubes of SIP 0 and of SIP 1 (cubes), "
        "or of others, such as cubes:2,5 (none; sips without a value)",
    )
    group.add_argument(
        "--sweep-bytes",
        nargs="?",
        const=DEFAULT_SWEEP,
        type=_sizes,
        dest="sizes",
        metavar="MIN:MAX",
        help=f"bandwidth by size, in steps of two, simulated (none; {DEFAULT_SWEEP} without a value)",
    )


def _add_output(group: "argparse._ArgumentGroup") -> None:
    group.add_argument("--short", action="store_true", help="sums by kind of part, on one screen")
    group.add_argument("--json", type=flag_types.output, metavar="FILE", help="write all figures")
    group.add_argument(
        "--csv", type=flag_types.output, metavar="FILE", help="write the figures of --matrix or --sweep-bytes"
    )
    group.add_argument("--svg", type=flag_types.output, metavar="FILE", help="draw --matrix")
    group.add_argument("--version", action=Version, nargs=0, help="print the version")


def _problem(values: argparse.Namespace) -> str | None:
    """What is wrong with these flags together, in one line."""
    is_matrix, is_sweep = values.matrix is not None, values.sizes is not None
    ways = {"--matrix": is_matrix, "--sweep-bytes": is_sweep, "--short": values.short}
    chosen = [flag for flag, is_chosen in ways.items() if is_chosen]
    if len(chosen) > 1:
        return f"give one of {' and '.join(chosen)}: each is an output of its own"
    ends = {"--from": values.src, "--to": values.dst}
    if is_matrix:
        given = [flag for flag, place in ends.items() if place is not None]
        return f"{given[0]}: --matrix shows all pairs; leave {' and '.join(given)} out" if given else None
    missing = [flag for flag, place in ends.items() if place is None]
    if missing:
        return f"the following arguments are required: {', '.join(missing)}"
    if is_sweep and values.bytes is not None:
        return "--bytes: --sweep-bytes gives the sizes; leave --bytes out"
    if values.csv is not None and not is_sweep:
        return "--csv: is for --matrix and --sweep-bytes; use --json"
    if values.svg is not None:
        return "--svg: draws --matrix; give that too"
    return None


def _matrix_of(text: str) -> MatrixOf:
    what, colon, sips = text.partition(":")
    numbers = sips.split(",") if colon else ["0", "1"]
    is_right = (what == "cubes" or (what == "sips" and not colon)) and len(numbers) == 2
    if not is_right or not all(number.isascii() and number.isdigit() and len(number) < 10 for number in numbers):
        raise argparse.ArgumentTypeError(f"{text!r} must be sips, cubes, or cubes:SIP,SIP such as cubes:2,5")
    first, second = map(int, numbers)
    if first == second:
        raise argparse.ArgumentTypeError(f"{text!r}: the same SIP twice; name two, such as cubes:2,5")
    return MatrixOf(what, (first, second))


def _sizes(text: str) -> list[int]:
    """MIN, its doubles, and MAX."""
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
    """Check that messages of these sizes have whole elements.

    Raises:
        ConfigError: naming the flag and the first that has not.
    """
    for size in sizes:
        if size % ELEMENT_BYTES:
            what = f"must be a multiple of {ELEMENT_BYTES}, the size of an element"
            raise ConfigError(f"{flag} {size}: {what}")


def check_most(sizes: list[int], slot_size: int, most_messages: int) -> None:
    """Check that the largest size is few enough messages of a slot.

    Raises:
        ConfigError: with the largest that is.
    """
    if sizes[-1] > most_messages * slot_size:
        what = f"is sent as messages of {slot_size} B (slot_size), {most_messages} at most"
        raise ConfigError(f"--sweep-bytes {sizes[-1]}: {what}; give at most {format_size(most_messages * slot_size)}")
