"""Flags of ``ahbm-launch``: :class:`Options` declares all flags and contains the parsed values."""

import argparse
import itertools
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from broker.ids import MAX_INCARNATION
from broker.mail.base import JOIN_TIMEOUT_S, SILENCE_S
from broker.mail.kinds import is_seeded, mail_abouts
from broker.mail.sockets import HEARTBEAT_MS
from launcher import flag_types
from launcher.isolation import STANDARD_OUTPUT
from sipsim import VERSION
from sipsim.collectives.semantics import operators
from sipsim.config.load import VARIANT
from sipsim.core.dtypes import DEFAULT_DTYPE, DTYPES
from sipsim.core.registry import Registry, nearest
from sipsim.node.faults import is_outage
from sipsim.records.job import Recording
from sipsim.records.spawn_call import SpawnCall

DEFAULT_BYTES = 64 * 1024
DEFAULT_SIZE = "the default size"
USAGE_EXIT = 2
ALGORITHM = "defaults.algorithm"
CHECK_INVARIANTS = "AHBM_CHECK_INVARIANTS"
CCL_TRACE = "AHBM_CCL_TRACE"
STANDARD_ERROR = Path("/dev/stderr")
LISTS = ("chips", "topologies", "links", "collectives", "algorithms", "tables", "variants", "engines", "fields")
"""The values of ``--list``."""
ENGINES: Registry[Callable[..., Any]] = Registry(
    "engine",
    {
        "launcher.engines.remote": ("auto", "k8s", "local", "mpi", "slurm", "ssh"),
        "launcher.engines.inproc": ("inproc",),
        "launcher.engines.manual": ("manual",),
    },
)
"""Engines, which start SIPs: functions from a :class:`~launcher.supervise.run.Run` and stop signals to an outcome."""


class ParserExit(Exception):
    """End of parsing without a run: help or version was requested (exit code 0), or a flag is wrong (exit code 2)."""

    def __init__(self, text: str, exit_code: int) -> None:
        super().__init__(text)
        self.text = text
        self.exit_code = exit_code


class Version(argparse.Action):
    """Argparse action of ``--version``: raises :class:`ParserExit` with the version as text."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> NoReturn:
        raise ParserExit(f"{parser.prog} {VERSION}", 0)


class Flag(NamedTuple):
    """A flag: its argparse declaration and its properties for other modules.

    ``add``: keywords of ``add_argument``. ``choices()``: the allowed values. ``env``: environment variable that also
    sets the flag. ``sets``: config key that the flag sets. ``resumed``: the flag is allowed with ``--resume``.
    ``alone``: the flag is for single runs: ``ahbm-races`` refuses the flag, reruns of ``--explain`` drop it.
    ``terminal``: the flag only affects what a terminal shows. ``processes``: the flag needs one process per SIP;
    ``--engine inproc`` refuses it. ``records``: what SIPs must record if the flag is given.
    """

    names: tuple[str, ...]
    group: str
    add: Mapping[str, Any]
    choices: Callable[[], Sequence[str]] | None = None
    env: str = ""
    sets: str = ""
    resumed: bool = False
    alone: bool = False
    terminal: bool = False
    processes: bool = False
    records: Recording | None = None

    @property
    def name(self) -> str:
        """The flag's last name, which is the long name if the flag also has a letter."""
        return self.names[-1]

    @property
    def type(self) -> Callable[[str], object] | None:
        """Parser of the flag's value; None if the value is any text."""
        return self.add.get("type")

    def add_to(self, group: "argparse._ArgumentGroup", dest: str, default: object) -> None:
        """Add the flag to an argparse group; the parsed value becomes attribute ``dest``."""
        keywords = dict(self.add)
        if self.env:
            text = os.environ.get(self.env)
            default = text == "1" if default is False else text or default
        if keywords.get("action") == "append":
            default = []
        if self.choices is not None:
            keywords["choices"] = self.choices()
        if keywords.get("action") is not Version:
            keywords |= {"dest": dest, "default": default}
        group.add_argument(*self.names, **keywords)


SYSTEM = "the system"
WORK = "the work"
BUILT_IN = "the work without a script"
RUN = "the run"
HOSTS = "the hosts"
FAILURES = "failures"
OUTPUT = "the output"
NOTES = {OUTPUT: "FILE - is standard output, in place of the table."}
"""Descriptions of groups, shown below the title."""


def _flag(group: str, spelling: str, text: str, value: Callable[[str], object] | None = None, **keywords: Any) -> Flag:
    """Return a flag. ``spelling``: names and metavar, such as ``-n, --iters N``; ``text``: help; ``value``: flag type.

    ``keywords``: fields of :class:`Flag`, and keywords of ``add_argument``.
    """
    properties = {name: keywords.pop(name) for name in Flag._fields if name in keywords}
    words = spelling.split()
    names = tuple(word.rstrip(",") for word in words if word.startswith("-"))
    metavar = {"metavar": words[-1]} if len(words) > len(names) else {}
    return Flag(names, group, {**keywords, **metavar, **({"type": value} if value else {}), "help": text}, **properties)


def _row(
    group: str,
    spelling: str,
    text: str,
    value: Callable[[str], object] | None = None,
    default: Any = None,
    compare: bool = True,
    also: tuple[Flag, ...] = (),
    **keywords: Any,
) -> Any:
    """Return a field of :class:`Options` with a flag. ``also``: further flags, for this field or without a field."""
    flag = _flag(group, spelling, text, value, **keywords)
    return field(default=default, compare=compare, metadata={"flags": (flag, *also)})


def _switch(group: str, spelling: str, text: str, default: bool | None = False, **keywords: Any) -> Any:
    """Return a field with a flag that takes no value and sets the opposite of the default."""
    action = "store_false" if default else "store_true"
    return _row(group, spelling, text, default=default, action=action, **keywords)


def _output(spelling: str, text: str, records: Recording | None = None) -> Any:
    """Return a field with a flag that names a result file."""
    return _row(OUTPUT, spelling, text, flag_types.output, resumed=True, alone=True, records=records)


@dataclass(frozen=True, kw_only=True)
class Options:
    """The parsed command line: one field per flag, in the order of ``--help``.

    ``hosts``: names, and the number of SIPs on each host (None if equal). ``bind``: address of this machine that
    other hosts reach. ``mail``: in one process, only seeded mail has an effect. ``deadlines``: whether timeouts are
    enabled. ``settings``: values of ``--set``. ``faults``: specs of ``sipsim.node.faults``; ``outages``: values of
    ``--fault`` for links, which become part of the config. ``max_sim_ps``: limit of simulated time in ps, or None.
    ``tee``: ranks whose output is shown; None if all ranks.

    ``sizes``: bytes per rank; ``n_elems``: elements per cube; one of the two is empty. ``size_source``: the flag that
    sets the sizes, for messages.
    """

    sips: int | None = _row(
        SYSTEM, "--sips N", "number of SIPs = ranks = processes (2)", flag_types.SIPS, sets="system.sips.count"
    )
    topology: str | None = _row(
        SYSTEM, "--topology NAME", "topology of the SIPs; see --list topologies (ring_1d)", sets="system.sips.topology"
    )
    cluster: Path | None = _row(
        SYSTEM, "--cluster FILE", "SIPs and links of a UMD cluster descriptor", flag_types.source
    )
    chip: str | None = _row(SYSTEM, "--chip NAME", "type of each SIP; see --list chips (ahbm)", sets="system.chip")
    shape: tuple[int, int] | None = _row(
        SYSTEM,
        "--shape WxH",
        "grid of a two-dimensional topology (a square)",
        flag_types.shape,
        sets="system.sips.shape",
    )
    link: str | None = _row(
        SYSTEM, "--link NAME", "link between SIPs; see --list links (ucie)", sets="system.sips.link"
    )
    variant: str | None = _row(
        SYSTEM, "--variant NAME", f"of the default config; see --list variants; also set by {VARIANT}=NAME", env=VARIANT
    )
    config: Path | None = _row(
        SYSTEM, "--config FILE", "YAML that changes topology, components or links", flag_types.source
    )
    ccl: Path | None = _row(SYSTEM, "--ccl FILE", "YAML that changes ccl.yaml", flag_types.source)
    settings: tuple[str, ...] = _row(
        SYSTEM, "--set KEY=VALUE", "change one value, by key path", default=(), action="append"
    )
    outages: tuple[str, ...] = ()

    algorithm: tuple[str, ...] | None = _row(
        WORK,
        "--algorithm NAME[,NAME...]",
        "entries of ccl.yaml (see --list algorithms); all: every suitable one; auto: the one that costs least "
        "(auto; for intercube defaults.algorithm)",
        flag_types.names,
        sets=ALGORITHM,
    )
    seed: int = _row(WORK, "--seed N", "seed of the data (0)", flag_types.SEED, default=0)
    verify_data: bool = _row(
        WORK, "--verify-data", "check the results of ranks (yes)", default=True, action=argparse.BooleanOptionalAction
    )

    collective: str | None = _row(BUILT_IN, "--collective NAME", "what to run; see --list collectives (intercube)")
    bytes: Sequence[int] | None = _row(
        BUILT_IN,
        "--bytes B[,B...]",
        "size of a rank's tensor (64K)",
        flag_types.list_of(flag_types.size),
        compare=False,
    )
    n_elem: Sequence[int] | None = _row(
        BUILT_IN,
        "--n-elem N[,N...]",
        "elements per cube, or per rank",
        flag_types.list_of(flag_types.IntRange(1, flag_types.MOST_ELEMENTS)),
        compare=False,
    )
    b: int | None = _row(BUILT_IN, "-b MIN", "sweep: smallest size", flag_types.size, compare=False)
    e: int | None = _row(BUILT_IN, "-e MAX", "sweep: largest size", flag_types.size, compare=False)
    f: int | None = _row(
        BUILT_IN,
        "-f FACTOR",
        "sweep: factor between sizes (2)",
        flag_types.IntRange(2, flag_types.MOST_ELEMENTS),
        compare=False,
    )
    sizes: tuple[int, ...] = (DEFAULT_BYTES,)
    n_elems: tuple[int, ...] = ()
    size_source: str = field(default=DEFAULT_SIZE, compare=False)
    dtype: str = _row(
        BUILT_IN, "--dtype", f"element type ({DEFAULT_DTYPE})", default=DEFAULT_DTYPE, choices=lambda: [*DTYPES]
    )
    op: str = _row(BUILT_IN, "--op", "operator of the reduction (sum)", default="sum", choices=operators)
    group: str = _row(
        BUILT_IN, "--group R,R,...", "SIPs that take part; rows, columns or halves: several groups (all)", default=""
    )
    root: int | None = _row(
        BUILT_IN, "--root R", "the root's rank in the group (0)", flag_types.IntRange(0, flag_types.MOST_SIPS - 1)
    )
    layout: tuple[int, int] | None = _row(
        BUILT_IN, "--layout CxP", "cubes and PEs that hold a tensor", flag_types.shape
    )
    in_place: bool | None = _switch(
        BUILT_IN,
        "--in-place",
        "one tensor is source and result (where possible)",
        default=None,
        also=(_flag(BUILT_IN, "--out-of-place", "source and result are two tensors", action="store_false"),),
    )
    iters: int = _row(
        BUILT_IN, "-n, --iters N", "timed iterations (1)", flag_types.IntRange(1, flag_types.MOST_ITERATIONS), default=1
    )
    warmup: int = _row(
        BUILT_IN, "-w, --warmup N", "untimed warmup (0)", flag_types.IntRange(0, flag_types.MOST_ITERATIONS), default=0
    )

    engine: str = _row(
        RUN,
        "--engine",
        "where SIPs run; local: one process per SIP, inproc: one for all SIPs (local)",
        default="local",
        choices=ENGINES.names,
    )
    mail: str = _row(
        RUN,
        "--mail NAME",
        f"how messages travel; {'; '.join(f'{name}: {about}' for name, about in mail_abouts().items())} (zmq)",
        flag_types.mail,
        default="zmq",
    )
    explain_sync: bool = _switch(
        RUN, "--explain-sync", "print what SIPs waited for, and at each SIGUSR1 during the run", resumed=True
    )
    check_invariants: bool = _switch(
        RUN, "--check-invariants", f"check queues at every step; also by {CHECK_INVARIANTS}=1", env=CHECK_INVARIANTS
    )
    max_sim_ps: int | None = _row(
        RUN,
        "--max-sim-time T",
        "stop when simulated time has reached T, such as 30us",
        flag_types.simulated_time,
        resumed=True,
    )
    jitter: int | None = _row(RUN, "--jitter SEED", "seed of random latencies, on chips with tiles", flag_types.SEED)
    dry_run: bool = _switch(
        RUN,
        "--dry-run",
        "check everything, start nothing, predict time and memory",
        resumed=True,
        alone=True,
        terminal=True,
    )

    hosts: flag_types.Hosts = _row(
        HOSTS, "--hosts A:N,B:N", "hosts, and SIPs on each; or @FILE", flag_types.hosts, default=(), processes=True
    )
    bind: str | None = _row(
        HOSTS, "--bind ADDR", "address at which hosts reach this machine (detected)", flag_types.bind, processes=True
    )

    timeout_s: float | None = _row(
        FAILURES, "--timeout S", "stop after S seconds of wall time", flag_types.seconds, resumed=True
    )
    join_timeout_s: float = _row(
        FAILURES, "--join-timeout S", "start all SIPs within S seconds (30)", flag_types.seconds, default=JOIN_TIMEOUT_S
    )
    progress_timeout_s: float = _row(
        FAILURES,
        "--progress-timeout S",
        "a SIP without progress for S seconds has failed: CPU time while the SIP computes, else wall time (60)",
        flag_types.seconds,
        default=60.0,
    )
    heartbeat_timeout_s: float = _row(
        FAILURES,
        "--heartbeat-timeout S",
        f"a host that is silent for S seconds is lost; raise S on lossy networks ({SILENCE_S:g})",
        flag_types.HeartbeatTimeout(HEARTBEAT_MS / 1000),
        default=SILENCE_S,
    )
    deadlines: bool = _switch(FAILURES, "--no-timeouts", "disable all timeouts, for use with a debugger", default=True)
    max_restarts: int = _row(
        FAILURES,
        "--max-restarts N",
        "restart lost ranks up to N times (0)",
        flag_types.IntRange(0, MAX_INCARNATION),
        default=0,
        processes=True,
    )
    run_dir: Path | None = _row(
        FAILURES, "--run-dir DIR", "write the files that --resume needs to DIR", Path, alone=True, processes=True
    )
    resume: Path | None = _row(
        FAILURES, "--resume DIR", "resume the run that had --run-dir DIR", Path, resumed=True, alone=True
    )
    faults: tuple[str, ...] = _row(
        FAILURES, "--fault SPEC", "inject a fault, such as kill:2@30us", default=(), processes=True, action="append"
    )

    json: Path | None = _output("--json FILE", "write the result, schema 1")
    csv: Path | None = _output("--csv FILE", "write the table as CSV")
    csv_links: Path | None = _output("--csv-links FILE", "write the traffic of each link as CSV")
    explain: bool = _switch(
        OUTPUT, "--explain", "print where the time went, and what halving a cost saves", records="explain"
    )
    explain_reruns: int | None = _row(
        OUTPUT,
        "--explain-reruns N",
        "rerun with each of the N changes that save most (2; 0 for a script)",
        flag_types.IntRange(0, 100),
    )
    trace_ccl: Path | None = _output(
        "--trace-ccl FILE",
        f"write a line of CSV per send and recv; {CCL_TRACE}=1: to standard error",
        records="trace",
    )
    oplog: Path | None = _output("--oplog FILE", "write all operations, one per line", records="oplog")
    log_dir: Path | None = _row(
        OUTPUT, "--log-dir DIR", "write a log per rank, and error.json", Path, resumed=True, alone=True
    )
    tee: tuple[int, ...] | None = _row(
        OUTPUT,
        "--tee RANKS",
        "ranks whose output is shown: all, none or 0,1 (all)",
        flag_types.ranks,
        resumed=True,
        processes=True,
    )
    list: str | None = _row(
        OUTPUT,
        "--list",
        "list the available names, or the fields of result files",
        alone=True,
        terminal=True,
        choices=lambda: LISTS,
        also=(_flag(OUTPUT, "--version", "print the version", action=Version, nargs=0),),
    )
    progress: bool = _switch(
        OUTPUT, "--progress", "print progress every few seconds; a terminal always shows it", resumed=True
    )
    quiet: bool = _switch(OUTPUT, "-q, --quiet", "do not print the table", resumed=True, terminal=True)
    verbose: bool = _switch(
        OUTPUT, "-v, --verbose", "print all lines below the table, and one line per rank", resumed=True, terminal=True
    )

    script: str | None = None
    as_module: bool = False
    script_args: tuple[str, ...] = ()
    spawn: SpawnCall | None = None

    @property
    def to_standard_output(self) -> tuple[str, ...]:
        """The flags whose file is standard output; if there is such a flag, the table is not printed."""
        return tuple(flag for flag, path in self.files.items() if path == STANDARD_OUTPUT)

    @property
    def files(self) -> dict[str, Path | None]:
        """The result files, by name of the flag; None if the flag is not given."""
        return {flag.name: getattr(self, name) for name, flag in FLAGS.items() if flag.type is flag_types.output}

    @property
    def has_default_size(self) -> bool:
        """Whether no flag gave the sizes."""
        return self.size_source == DEFAULT_SIZE

    @property
    def records(self) -> tuple[Recording, ...]:
        """The recordings that the given flags need from SIPs."""
        return tuple(flag.records for name, flag in FLAGS.items() if flag.records and getattr(self, name))

    @property
    def silence_s(self) -> float | None:
        """Seconds after which a silent connection counts as lost; None if never."""
        return self.heartbeat_timeout_s if self.deadlines else None

    @property
    def packet_log_dir(self) -> Path | None:
        """The absolute path of the folder in which packet logs outlast the run; None if packet logs are temporary."""
        folder = self.resume or self.run_dir
        return folder.absolute() if folder else None

    @property
    def named_mail(self) -> str | None:
        """The kind of mail for result files; None if one process delivers messages in the order of sending."""
        return self.mail if self.engine != "inproc" or is_seeded(self.mail) else None

    @property
    def inputs(self) -> dict[str, Path | None]:
        """The files that the run reads, by name of the flag; None if the flag is not given."""
        script = None if self.script is None or self.as_module else Path(self.script)
        sources = {flag.name: getattr(self, name) for name, flag in FLAGS.items() if flag.type is flag_types.source}
        return {**sources, "the script": script}

    def changed(self, **fields: object) -> "Options":
        """Return a copy of the options with some fields replaced."""
        return replace(self, **fields)  # type: ignore[arg-type]


FLAGS: dict[str, Flag] = {each.name: each.metadata["flags"][0] for each in fields(Options) if each.metadata}
"""The first flag of each field of :class:`Options`."""


def closing(page: str, *examples: str) -> str:
    """Return the end of a help text: examples, and where the documentation is."""
    shown = "".join(f"  {each}\n" for each in examples)
    examples_text = f"examples:\n{shown}\n" if examples else ""
    return f"{examples_text}Documentation: {page} of the source; its README.md lists all pages."


class Parser(argparse.ArgumentParser):
    """Argument parser that raises :class:`ParserExit` for mistakes, help, version. ``closing``: end of the help text.

    Each flag's help ends with the default in parentheses; if a text lacks this, ``(none)`` or ``(off)`` is added.
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
            long_flags = [s for action in self._actions for s in action.option_strings if s.startswith("--")]
            # One-letter flags: any other letter would be an equally bad guess.
            is_word = flag.startswith("--")
            near = nearest(flag.split("=")[0], long_flags) if is_word else ""
            hint = f"did you mean {near}?" if near else f"see {self.prog} --help"
            message = f"unknown flag {flag}; {hint}"
        raise ParserExit(f"{self.prog}: {message}", USAGE_EXIT)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse; a word such as ``-64K`` after a flag that takes a value is the value, not another flag."""
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
                self.error(f"{flag}: the value is empty; give a value, or leave the flag out")
        return super().parse_known_args(words, namespace)

    def print_help(self, file: object = None) -> NoReturn:
        raise ParserExit(self.format_help().rstrip(), 0)


def parse(argv: list[str]) -> Options:
    """Return the command line as options.

    Raises:
        ParserExit: for ``--help``, ``--version`` and every mistake.
    """
    flags, script, as_module, script_args = _split_script(argv)
    values = launch_parser().parse_args(flags)
    for name in (CHECK_INVARIANTS, CCL_TRACE):
        switch = os.environ.get(name, "")
        if switch not in ("", "0", "1"):
            raise ParserExit(f"ahbm-launch: {name}={switch}: give 1 or 0, or unset it", USAGE_EXIT)
    if values.trace_ccl is None and os.environ.get(CCL_TRACE) == "1":
        values.trace_ccl = STANDARD_ERROR
    if script is not None:
        _check_script_flags(flags)
    source, sizes, n_elems = _sizes(values)
    given: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in vars(values).items()
    }
    del given["version"]
    outages = tuple(filter(is_outage, given["faults"]))
    given |= {"outages": outages, "faults": tuple(spec for spec in given["faults"] if spec not in outages)}
    given |= {"size_source": source, "sizes": sizes, "n_elems": n_elems}
    return Options(**given, script=script, as_module=as_module, script_args=script_args)


def given_options(argv: list[str]) -> dict[str, str]:
    """Return the spelling of the flag, by name of the option, for each option that a valid command line sets."""
    flags, script, as_module, _ = _split_script(argv)
    parser = launch_parser()
    spellings: dict[str, str] = {}
    for action in parser._actions:
        # Two flags may set the two values of one option.
        spellings[action.dest] = "/".join(filter(None, (spellings.get(action.dest), action.option_strings[-1])))
        action.default = argparse.SUPPRESS
    given = {name: spellings[name] for name in vars(parser.parse_args(flags))}
    return given if script is None else {**given, "script": f"-m {script}" if as_module else script}


def _check_script_flags(flags: list[str]) -> None:
    for name, flag in given_options(flags).items():
        if FLAGS[name].group == BUILT_IN:
            text = "has no effect with a script: a script makes its own tensors and calls; leave the flag out"
            raise ParserExit(f"ahbm-launch: {flag}: {text}", USAGE_EXIT)


def json_file(argv: list[str], has_script: bool = True) -> Path | None:
    """Return the file of ``--json`` on an invalid command line. ``has_script``: whether a script may follow flags."""
    finder = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    finder.add_argument("--json", type=Path)
    try:
        flags = _split_script(argv)[0] if has_script else argv
        path: Path | None = finder.parse_known_args(flags)[0].json
    except (argparse.ArgumentError, ParserExit):
        return None
    return path


def _split_script(argv: list[str]) -> tuple[list[str], str | None, bool, tuple[str, ...]]:
    """Return flags, name of script or module (None if absent), whether this is a module, and the script's arguments."""
    takes_value = {s for a in launch_parser()._actions for s in a.option_strings if a.nargs is None}
    index = 0
    while index < len(argv):
        argument = argv[index]
        if argument == "-m":
            if index + 1 == len(argv):
                raise ParserExit("ahbm-launch: -m needs the name of a module", USAGE_EXIT)
            return argv[:index], argv[index + 1], True, tuple(argv[index + 2 :])
        if argument == "--" or not argument.startswith("-"):
            rest = argv[index + 1 :] if argument == "--" else argv[index:]
            if rest[:1] == ["-m"] and len(rest) > 1:
                return argv[:index], rest[1], True, tuple(rest[2:])
            return argv[:index], rest[0] if rest else None, False, tuple(rest[1:])
        index += 2 if argument in takes_value else 1
    return argv, None, False, ()


EXAMPLES = (
    "ahbm-launch --sips 4 --topology torus_2d",
    "ahbm-launch --sips 4 --collective all_reduce --algorithm auto --bytes 64K --explain",
    "ahbm-launch --sips 4 --set links.ucie.params.retimer_ns=9 my_script.py its own arguments",
)


def launch_parser() -> argparse.ArgumentParser:
    """Return the parser for the flags of ``ahbm-launch``, without a script and the script's arguments."""
    parser = Parser(
        prog="ahbm-launch",
        usage="ahbm-launch [options] [--] [script.py | -m module] [script args]",
        description="Simulate AHBM SIPs, one process each. Without a script it all-reduces seeded data and checks it. "
        "The default of a flag is in parentheses.",
        allow_abbrev=False,
        closing=closing("docs/configuring.md, docs/output.md, docs/host-scripts.md and docs/faults.md", *EXAMPLES),
    )
    for title in dict.fromkeys(flag.group for flag in FLAGS.values()):
        add_flags(parser, title)
    return parser


def add_flags(parser: argparse.ArgumentParser, title: str) -> None:
    """Add the group of flags with title ``title`` to ``parser``."""
    group = parser.add_argument_group(title, NOTES.get(title))
    for option in fields(Options):
        for flag in option.metadata.get("flags", ()):
            if flag.group == title:
                flag.add_to(group, option.name, option.default)


def _sizes(values: argparse.Namespace) -> tuple[str, tuple[int, ...], tuple[int, ...]]:
    """Return the flag that sets the sizes, sizes in bytes, and numbers of elements; one of the two tuples is empty."""
    sweep = any(value is not None for value in (values.b, values.e, values.f))
    if sum((sweep, values.bytes is not None, values.n_elem is not None)) > 1:
        raise ParserExit("ahbm-launch: give one of --bytes, --n-elem and -b/-e", USAGE_EXIT)
    if values.n_elem is not None:
        return "--n-elem", (), tuple(values.n_elem)
    if values.bytes is not None:
        return "--bytes", tuple(values.bytes), ()
    if not sweep:
        return DEFAULT_SIZE, (DEFAULT_BYTES,), ()
    if values.b is None or values.e is None or values.b > values.e:
        raise ParserExit("ahbm-launch: a sweep needs -b MIN and -e MAX, with MIN at most MAX", USAGE_EXIT)
    sizes, size, factor = [], values.b, values.f or 2
    while size <= values.e:
        sizes.append(size)
        size *= factor
    return "-b/-e: size", tuple(sizes), ()
