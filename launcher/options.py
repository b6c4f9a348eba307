"""The flags of ``ahbm-launch``, and the options that a command line sets."""

import argparse
import itertools
import os
import re
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from broker.ids import MAX_INCARNATION
from broker.mail.base import SILENCE_S
from broker.mail.kinds import is_seeded, mail_abouts
from broker.mail.sockets import HEARTBEAT_MS
from launcher import flag_types
from launcher.engines import ENGINES
from launcher.isolation import STANDARD_OUTPUT
from launcher.supervise.request import RunSettings
from sipsim import VERSION
from sipsim.chips.api.run_plan import RunPlan
from sipsim.collectives.call import operators
from sipsim.config.load import VARIANT
from sipsim.core.dtypes import DEFAULT_DTYPE, DTYPES
from sipsim.core.registry import nearest
from sipsim.node.faults import is_outage
from sipsim.records.job import Job

DEFAULT_BYTES = 64 * 1024
DEFAULT_SIZE = "the default size"
USAGE_EXIT = 2
ALGORITHM = "defaults.algorithm"
LISTS = ("chips", "topologies", "links", "collectives", "algorithms", "tables", "variants", "engines", "fields")
"""What ``--list`` shows."""


class Usage(Exception):
    """Nothing to run: help was requested (exit code 0), or a flag is wrong (one line, exit code 2)."""

    def __init__(self, text: str, exit_code: int) -> None:
        super().__init__(text)
        self.text = text
        self.exit_code = exit_code


class Prepared(NamedTuple):
    """The system (``plan``), the work (``job``), and the name of the engine."""

    plan: RunPlan
    job: Job
    engine: str


@dataclass(frozen=True, kw_only=True)
class Options(RunSettings):
    """The parsed command line. ``sizes`` are bytes a rank, ``n_elems`` elements a cube; one of them is empty.

    ``size_source``: what gave the sizes, for messages.

    ``settings``: those of ``--set``. ``outages``: specs of ``--fault`` that are of links, and so of the config.
    """

    sips: int | None
    topology: str | None
    chip: str | None
    cluster: Path | None
    shape: tuple[int, int] | None
    link: str | None
    jitter: int | None
    variant: str | None
    config: Path | None
    ccl: Path | None
    settings: tuple[str, ...]
    outages: tuple[str, ...]
    collective: str | None
    algorithm: tuple[str, ...] | None
    group: str
    root: int | None
    layout: tuple[int, int] | None
    in_place: bool | None
    sizes: tuple[int, ...]
    size_source: str = field(compare=False)
    n_elems: tuple[int, ...]
    dtype: str
    op: str
    iters: int
    warmup: int
    seed: int
    engine: str
    check_invariants: bool
    timeout_s: float | None
    verify_data: bool
    json: Path | None
    csv: Path | None
    csv_links: Path | None
    trace_ccl: Path | None
    oplog: Path | None
    explain: bool
    explain_reruns: int | None
    list: str | None
    dry_run: bool
    progress: bool
    quiet: bool
    verbose: bool
    script: str | None
    as_module: bool
    script_args: tuple[str, ...]

    @property
    def to_standard_output(self) -> tuple[str, ...]:
        """The flags whose file is standard output, which then has no table."""
        return tuple(flag for flag, path in self.files.items() if path == STANDARD_OUTPUT)

    @property
    def files(self) -> dict[str, Path | None]:
        """The files that flags name for results."""
        return {
            "--json": self.json,
            "--csv": self.csv,
            "--csv-links": self.csv_links,
            "--trace-ccl": self.trace_ccl,
            "--oplog": self.oplog,
        }

    @property
    def named_mail(self) -> str | None:
        """The kind of mail as results name it; None where one process delivers in the order of sending."""
        return self.mail if self.engine != "inproc" or is_seeded(self.mail) else None

    @property
    def inputs(self) -> dict[str, Path | None]:
        """The files that the run reads, by the flag that names them."""
        script = None if self.script is None or self.as_module else Path(self.script)
        return {"--config": self.config, "--ccl": self.ccl, "--cluster": self.cluster, "the script": script}

    def changed(self, **fields: object) -> "Options":
        """These options with some fields replaced."""
        return replace(self, **fields)  # type: ignore[arg-type]


def closing(page: str, *examples: str) -> str:
    """The end of a help text: examples, and where the documentation is."""
    shown = "".join(f"  {each}\n" for each in examples)
    examples_text = f"examples:\n{shown}\n" if examples else ""
    return f"{examples_text}Documentation: {page} of the source; its README.md lists all pages."


class Parser(argparse.ArgumentParser):
    """Raises :class:`Usage` for mistakes, help and the version. ``closing``: the end of the help text.

    The help of a flag ends with its default in parentheses. Where it has none, ``(none)`` or ``(off)`` is added.
    """

    def __init__(self, *words: Any, closing: str = "", **keywords: Any) -> None:
        super().__init__(*words, **keywords)
        self._closing = closing

    def format_help(self) -> str:
        for action in self._actions:
            if action.option_strings and action.help and not action.help.endswith(")"):
                is_answer = isinstance(action, Version | argparse._HelpAction)
                action.help += "" if is_answer else " (off)" if action.nargs == 0 else " (none)"
        return f"{super().format_help()}\n{self._closing}".rstrip() + "\n"

    def error(self, message: str) -> NoReturn:
        if message.startswith("unrecognized arguments: "):
            flag = message.split()[2]
            known = [s for action in self._actions for s in action.option_strings if s.startswith("--")]
            # All letters are alike: another one is no better guess than any.
            is_word = flag.startswith("--")
            near = nearest(flag.split("=")[0], known) if is_word else ""
            hint = f"did you mean {near}?" if near else f"see {self.prog} --help"
            message = f"unknown flag {flag}; {hint}"
        raise Usage(f"{self.prog}: {message}", USAGE_EXIT)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """A word such as ``-64K`` after a flag that takes a value is that value, for its type to judge."""
        takes_value = {s for action in self._actions for s in action.option_strings if action.nargs is None}
        words: list[str] = []
        for word in sys.argv[1:] if args is None else args:
            if words and words[-1] in takes_value and re.match(r"-[.\d]", word):
                words[-1] += f"={word}" if words[-1].startswith("--") else word
            else:
                words.append(word)
        for word, following in itertools.pairwise([*words, None]):
            flag, has_value, value = (word or "").partition("=")
            if flag in takes_value and not (value if has_value else following != ""):
                self.error(f"{flag}: its value is empty; give one, or leave the flag out")
        return super().parse_known_args(words, namespace)

    def print_help(self, file: object = None) -> NoReturn:
        raise Usage(self.format_help().rstrip(), 0)


class Version(argparse.Action):
    """``--version``."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> NoReturn:
        raise Usage(f"{parser.prog} {VERSION}", 0)


def parse(argv: list[str]) -> Options:
    """The command line as options.

    Raises:
        Usage: for ``--help``, ``--version`` and every mistake.
    """
    own, script, as_module, script_args = _split_script(argv)
    values = launch_parser().parse_args(own)
    switch = os.environ.get(CHECK_INVARIANTS, "")
    if switch not in ("", "0", "1"):
        raise Usage(f"ahbm-launch: {CHECK_INVARIANTS}={switch}: give 1 or 0, or unset it", USAGE_EXIT)
    if script is not None:
        _check_script_flags(own)
    source, sizes, n_elems = _sizes(values)
    fields = {name: value for name, value in vars(values).items() if name in Options.__dataclass_fields__}
    outages = tuple(filter(is_outage, values.faults))
    fields |= {"settings": tuple(values.settings), "outages": outages}
    fields |= {"faults": tuple(spec for spec in values.faults if spec not in outages)}
    fields |= {"size_source": source, "sizes": sizes, "n_elems": n_elems}
    return Options(**fields, script=script, as_module=as_module, script_args=script_args)


def given_options(argv: list[str]) -> dict[str, str]:
    """The options that a valid command line sets, with their flags."""
    own, script, as_module, _ = _split_script(argv)
    parser = launch_parser()
    flags: dict[str, str] = {}
    for action in parser._actions:
        # Two flags may be the two values of one option.
        flags[action.dest] = "/".join(filter(None, (flags.get(action.dest), action.option_strings[-1])))
        action.default = argparse.SUPPRESS
    names = vars(parser.parse_args(own))
    given = {name: flags[name] for name in names}
    return given if script is None else {**given, "script": f"-m {script}" if as_module else script}


def _check_script_flags(own: list[str]) -> None:
    only = argparse.ArgumentParser(add_help=False)
    add_collective(only.add_argument_group())
    without_effect = {action.dest for action in only._actions}
    for name, flag in given_options(own).items():
        if name in without_effect:
            why = "a script makes its own tensors and calls"
            raise Usage(f"ahbm-launch: {flag}: has no effect with a script: {why}; leave the flag out", USAGE_EXIT)


def json_file(argv: list[str]) -> Path | None:
    """The file that ``--json`` names on an invalid command line."""
    finder = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    finder.add_argument("--json", type=Path)
    try:
        found: Path | None = finder.parse_known_args(_split_script(argv)[0])[0].json
    except (argparse.ArgumentError, Usage):
        return None
    return found


def _split_script(argv: list[str]) -> tuple[list[str], str | None, bool, tuple[str, ...]]:
    """The flags, and what follows them: ``[--] script.py args`` or ``-m module args``."""
    takes_value = {s for a in launch_parser()._actions for s in a.option_strings if a.nargs is None}
    index = 0
    while index < len(argv):
        argument = argv[index]
        if argument == "-m":
            if index + 1 == len(argv):
                raise Usage("ahbm-launch: -m needs the name of a module", USAGE_EXIT)
            return argv[:index], argv[index + 1], True, tuple(argv[index + 2 :])
        if argument == "--" or not argument.startswith("-"):
            rest = argv[index + 1 :] if argument == "--" else argv[index:]
            if rest[:1] == ["-m"] and len(rest) > 1:
                return argv[:index], rest[1], True, tuple(rest[2:])
            return argv[:index], rest[0] if rest else None, False, tuple(rest[1:])
        index += 2 if argument in takes_value else 1
    return argv, None, False, ()


CHECK_INVARIANTS = "AHBM_CHECK_INVARIANTS"
EXAMPLES = (
    "ahbm-launch --sips 4 --topology torus_2d",
    "ahbm-launch --sips 4 --collective all_reduce --algorithm auto --bytes 64K --explain",
    "ahbm-launch --sips 4 --set links.ucie.params.retimer_ns=9 my_script.py its own arguments",
)


def launch_parser() -> argparse.ArgumentParser:
    """The parser of the flags of ``ahbm-launch``, without a script and what follows it."""
    parser = Parser(
        prog="ahbm-launch",
        usage="ahbm-launch [options] [--] [script.py | -m module] [script args]",
        description="Simulate AHBM SIPs, one process each. Without a script it all-reduces seeded data and checks it. "
        "The default of a flag is in parentheses.",
        allow_abbrev=False,
        closing=closing("docs/configuring.md, docs/output.md, docs/host-scripts.md and docs/faults.md", *EXAMPLES),
    )
    add_system(parser.add_argument_group("the system"))
    _add_work(parser.add_argument_group("the work"))
    add_collective(parser.add_argument_group("the work without a script"))
    _add_run(parser.add_argument_group("the run"))
    _add_hosts(parser.add_argument_group("the hosts"))
    _add_failures(parser.add_argument_group("failures"))
    _add_output(parser.add_argument_group("the output", "A FILE of - is standard output, in place of the table."))
    return parser


def add_system(group: "argparse._ArgumentGroup") -> None:
    """The flags that say what is simulated."""
    group.add_argument("--sips", type=flag_types.SIPS, metavar="N", help="number of SIPs = ranks = processes (2)")
    group.add_argument("--topology", metavar="NAME", help="how SIPs are joined; see --list topologies (ring_1d)")
    group.add_argument("--cluster", type=Path, metavar="FILE", help="SIPs and links of a UMD cluster descriptor")
    group.add_argument("--chip", metavar="NAME", help="what each SIP is; see --list chips (ahbm)")
    group.add_argument(
        "--shape", type=flag_types.shape, metavar="WxH", help="grid of a two-dimensional topology (a square)"
    )
    group.add_argument("--link", metavar="NAME", help="link between SIPs; see --list links (ucie)")
    group.add_argument(
        "--variant",
        metavar="NAME",
        default=os.environ.get(VARIANT) or None,
        help=f"of the default config; see --list variants; also by {VARIANT}=NAME",
    )
    group.add_argument("--config", type=Path, metavar="FILE", help="YAML that changes topology, components or links")
    group.add_argument("--ccl", type=Path, metavar="FILE", help="YAML that changes ccl.yaml")
    group.add_argument(
        "--set", action="append", default=[], dest="settings", metavar="KEY=VALUE", help="change one value, by key path"
    )


def _add_work(group: "argparse._ArgumentGroup") -> None:
    group.add_argument(
        "--algorithm",
        type=flag_types.names,
        metavar="NAME[,NAME...]",
        help="entries of ccl.yaml (see --list algorithms); all that suit, or auto: the one that costs least "
        "(auto; of intercube defaults.algorithm)",
    )
    group.add_argument("--seed", type=flag_types.SEED, default=0, metavar="N", help="seed of the data (0)")
    group.add_argument(
        "--verify-data", action=argparse.BooleanOptionalAction, default=True, help="compare results (yes)"
    )


def add_collective(group: "argparse._ArgumentGroup") -> None:
    """The flags of the built-in job, its collective, group, data and sizes, which have no effect with a script."""
    group.add_argument("--collective", metavar="NAME", help="what to run; see --list collectives (intercube)")
    group.add_argument(
        "--bytes", type=flag_types.list_of(flag_types.size), metavar="B[,B...]", help="size of a rank's tensor (64K)"
    )
    group.add_argument(
        "--n-elem",
        type=flag_types.list_of(flag_types.IntRange(1, flag_types.MOST_ELEMENTS)),
        metavar="N[,N...]",
        help="elements a cube, or a rank",
    )
    group.add_argument("-b", type=flag_types.size, metavar="MIN", help="sweep: smallest size")
    group.add_argument("-e", type=flag_types.size, metavar="MAX", help="sweep: largest size")
    factor = flag_types.IntRange(2, flag_types.MOST_ELEMENTS)
    group.add_argument("-f", type=factor, metavar="FACTOR", help="sweep: factor between sizes (2)")
    group.add_argument("--dtype", choices=list(DTYPES), default=DEFAULT_DTYPE, help=f"element type ({DEFAULT_DTYPE})")
    group.add_argument("--op", choices=operators(), default="sum", help="reduction (sum)")
    group.add_argument(
        "--group",
        default="",
        metavar="R,R,...",
        help="SIPs that take part; rows, columns or halves: in parallel (all)",
    )
    root = flag_types.IntRange(0, flag_types.MOST_SIPS - 1)
    group.add_argument("--root", type=root, metavar="R", help="its rank in the group (0)")
    group.add_argument("--layout", type=flag_types.shape, metavar="CxP", help="cubes and PEs that hold a tensor")
    group.add_argument(
        "--in-place",
        action="store_true",
        default=None,
        help="source and result are one tensor (where they can be)",
    )
    group.add_argument("--out-of-place", action="store_false", dest="in_place", default=None, help="two tensors")
    iters, warmup = (flag_types.IntRange(least, flag_types.MOST_ITERATIONS) for least in (1, 0))
    group.add_argument("-n", "--iters", type=iters, default=1, metavar="N", help="timed iterations (1)")
    group.add_argument("-w", "--warmup", type=warmup, default=0, metavar="N", help="untimed ones (0)")


def _add_run(group: "argparse._ArgumentGroup") -> None:
    group.add_argument(
        "--engine",
        choices=ENGINES.names(),
        default="local",
        help="where SIPs run; local: one process each, inproc: one for all (local)",
    )
    mails = "; ".join(f"{name}: {about}" for name, about in mail_abouts().items())
    group.add_argument(
        "--mail", type=flag_types.mail, default="zmq", metavar="NAME", help=f"how messages travel; {mails} (zmq)"
    )
    group.add_argument(
        "--explain-sync", action="store_true", help="print what SIPs waited for; SIGUSR1 does so at once"
    )
    group.add_argument(
        "--check-invariants",
        action="store_true",
        default=os.environ.get(CHECK_INVARIANTS) == "1",
        help=f"check the queues at every step; also by {CHECK_INVARIANTS}=1",
    )
    group.add_argument(
        "--max-sim-time",
        type=flag_types.simulated_time,
        dest="max_sim_ps",
        metavar="T",
        help="stop when simulated time has reached T, such as 30us",
    )
    group.add_argument(
        "--jitter", type=flag_types.SEED, metavar="SEED", help="seed of added latencies, on chips of tiles"
    )
    group.add_argument("--dry-run", action="store_true", help="check everything, start nothing, say what it would take")


def _add_hosts(group: "argparse._ArgumentGroup") -> None:
    group.add_argument(
        "--hosts", type=flag_types.hosts, default=(), metavar="A:N,B:N", help="hosts, and SIPs on each; or @FILE"
    )
    group.add_argument(
        "--bind", type=flag_types.bind, metavar="ADDR", help="address of this machine for other hosts (detected)"
    )


def _add_failures(group: "argparse._ArgumentGroup") -> None:
    group.add_argument(
        "--timeout", type=flag_types.seconds, dest="timeout_s", metavar="S", help="stop after S seconds of wall time"
    )
    group.add_argument(
        "--join-timeout",
        type=flag_types.seconds,
        default=RunSettings.join_timeout_s,
        dest="join_timeout_s",
        metavar="S",
        help="for all SIPs to start (30)",
    )
    group.add_argument(
        "--progress-timeout",
        type=flag_types.seconds,
        default=RunSettings.progress_timeout_s,
        dest="progress_timeout_s",
        metavar="S",
        help="a SIP without progress is hung then: CPU time if it computes, else by the clock (60)",
    )
    group.add_argument(
        "--heartbeat-timeout",
        type=flag_types.HeartbeatTimeout(HEARTBEAT_MS / 1000),
        default=RunSettings.heartbeat_timeout_s,
        dest="heartbeat_timeout_s",
        metavar="S",
        help=f"a host that is silent for so long is lost; longer on lossy networks ({SILENCE_S:g})",
    )
    group.add_argument("--no-timeouts", action="store_false", dest="deadlines", help="no deadlines: for debuggers")
    group.add_argument(
        "--max-restarts",
        type=flag_types.IntRange(0, MAX_INCARNATION),
        default=0,
        metavar="N",
        help="restarts of lost ranks (0)",
    )
    group.add_argument("--run-dir", type=Path, metavar="DIR", help="keep what --resume needs there")
    group.add_argument("--resume", type=Path, metavar="DIR", help="resume the run that was kept there")
    group.add_argument(
        "--fault",
        action="append",
        default=[],
        dest="faults",
        metavar="SPEC",
        help="inject one, such as kill:2@30us",
    )


def _add_output(group: "argparse._ArgumentGroup") -> None:
    group.add_argument("--json", type=flag_types.output, metavar="FILE", help="write the result, schema 1")
    group.add_argument("--csv", type=flag_types.output, metavar="FILE", help="write the table as CSV")
    group.add_argument(
        "--csv-links", type=flag_types.output, metavar="FILE", help="write what crosses each link as CSV"
    )
    group.add_argument("--explain", action="store_true", help="say where the time went, and what a halved cost saves")
    group.add_argument(
        "--explain-reruns",
        type=flag_types.IntRange(0, 100),
        metavar="N",
        help="run again with so many of the changes that save most (2; 0 for a script)",
    )
    group.add_argument(
        "--trace-ccl", type=flag_types.output, metavar="FILE", help="write a line of CSV a send and recv"
    )
    group.add_argument("--oplog", type=flag_types.output, metavar="FILE", help="write all operations, a line each")
    group.add_argument("--log-dir", type=Path, metavar="DIR", help="write a log a rank, and error.json")
    group.add_argument(
        "--tee", type=flag_types.ranks, metavar="RANKS", help="whose output to show: all, none or 0,1 (all)"
    )
    group.add_argument("--list", choices=LISTS, help="list the available names; or the fields of result files")
    group.add_argument("--version", action=Version, nargs=0, help="print the version")
    group.add_argument(
        "--progress",
        action="store_true",
        help="print how far the run is, every few seconds, as a terminal shows anyway",
    )
    group.add_argument("-q", "--quiet", action="store_true", help="no table")
    group.add_argument("-v", "--verbose", action="store_true", help="all lines below the table, and a line a rank")


def _sizes(values: argparse.Namespace) -> tuple[str, tuple[int, ...], tuple[int, ...]]:
    sweep = any(value is not None for value in (values.b, values.e, values.f))
    if sum((sweep, values.bytes is not None, values.n_elem is not None)) > 1:
        raise Usage("ahbm-launch: give one of --bytes, --n-elem and -b/-e", USAGE_EXIT)
    if values.n_elem is not None:
        return "--n-elem", (), tuple(values.n_elem)
    if values.bytes is not None:
        return "--bytes", tuple(values.bytes), ()
    if not sweep:
        return DEFAULT_SIZE, (DEFAULT_BYTES,), ()
    if values.b is None or values.e is None or values.b > values.e:
        raise Usage("ahbm-launch: a sweep needs -b MIN and -e MAX, with MIN at most MAX", USAGE_EXIT)
    sizes, size, factor = [], values.b, values.f or 2
    while size <= values.e:
        sizes.append(size)
        size *= factor
    return "-b/-e: size", tuple(sizes), ()
