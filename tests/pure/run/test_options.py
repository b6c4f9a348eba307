"""The flags: what each becomes, what is refused and in which words, and where ours end and a script's begin."""

import argparse
import inspect
import re
from collections.abc import Callable
from contextlib import redirect_stdout, suppress
from io import StringIO
from pathlib import Path

import pytest

from launcher import options
from launcher.bench import command as bench
from launcher.bench.base import BENCHES
from launcher.commands import by_hand, launch
from launcher.commands import races as cli_races
from launcher.flag_types import output
from launcher.options import FLAGS, ParserExit, launch_parser, parse
from launcher.probe import command as probe
from launcher.probe.command import parse_probe
from sipsim.chips.ahbm.host.torch import Torch
from sipsim.chips.config import load
from sipsim.core.dtypes import DEFAULT_DTYPE
from sipsim.records.job import Job

ROOT = Path(__file__).resolve().parents[3]


def refusal(*argv: str) -> str:
    """The one line that a command line is refused with."""
    with pytest.raises(ParserExit) as caught:
        parse(list(argv))
    assert caught.value.exit_code == 2
    assert "\n" not in caught.value.text
    assert caught.value.text.startswith("ahbm-launch: ")
    return caught.value.text.removeprefix("ahbm-launch: ")


class TestDefaults:
    def test_nothing_is_chosen_that_the_config_chooses(self) -> None:
        chosen = parse([])
        assert [chosen.sips, chosen.topology, chosen.shape, chosen.link, chosen.algorithm] == [None] * 5
        assert [chosen.config, chosen.ccl, chosen.json, chosen.csv, chosen.list, chosen.timeout_s] == [None] * 6
        assert (chosen.settings, chosen.script, chosen.script_args) == ((), None, ())

    def test_the_work(self) -> None:
        chosen = parse([])
        assert (chosen.collective, chosen.dtype, chosen.op, chosen.iters) == (None, "f16", "sum", 1)
        assert (chosen.warmup, chosen.seed, chosen.verify_data, chosen.engine) == (0, 0, True, "local")
        assert (chosen.sizes, chosen.n_elems) == ((65536,), ())

    def test_they_cannot_be_changed(self) -> None:
        with pytest.raises(AttributeError):
            parse([]).sips = 3  # type: ignore[misc]


class TestValues:
    @pytest.mark.parametrize(
        ("argv", "name", "value"),
        [
            ("--sips 4", "sips", 4),
            ("--sips=4", "sips", 4),
            ("--topology torus_2d", "topology", "torus_2d"),
            ("--shape 3x2", "shape", (3, 2)),
            ("--shape 3X2", "shape", (3, 2)),
            ("--link ucie", "link", "ucie"),
            ("--config a.yaml", "config", Path("a.yaml")),
            ("--ccl b.yaml", "ccl", Path("b.yaml")),
            ("--set a=1 --set b.c=2", "settings", ("a=1", "b.c=2")),
            ("--set=a=b=c", "settings", ("a=b=c",)),
            ("--bytes 4K,1M,7", "sizes", (4096, 2**20, 7)),
            ("--n-elem 8", "n_elems", (8,)),
            ("--n-elem 8,1,9", "n_elems", (8, 1, 9)),
            ("--dtype i32", "dtype", "i32"),
            ("-n 5", "iters", 5),
            ("--iters 5", "iters", 5),
            ("-w 0", "warmup", 0),
            ("--warmup 3", "warmup", 3),
            ("--seed 18446744073709551615", "seed", 2**64 - 1),
            ("--no-verify-data", "verify_data", False),
            ("--engine inproc", "engine", "inproc"),
            ("--timeout 0.5", "timeout_s", 0.5),
            ("--hosts a:2,b:2", "hosts", (("a", 2), ("b", 2))),
            ("--hosts node-1.x,10.0.0.2:3", "hosts", (("node-1.x", None), ("10.0.0.2", 3))),
            ("--hosts [fe80::1]:2,[::1]", "hosts", (("fe80::1", 2), ("::1", None))),
            ("--bind 10.0.0.1", "bind", "10.0.0.1"),
            ("--bind 0:0:0:0:0:0:0:1", "bind", "::1"),
            ("--max-restarts 3", "max_restarts", 3),
            ("--join-timeout 1.5", "join_timeout_s", 1.5),
            ("--progress-timeout 9", "progress_timeout_s", 9.0),
            ("--max-sim-time 30us", "max_sim_ps", 30_000_000),
            ("--max-sim-time 1.5ms", "max_sim_ps", 1_500_000_000),
            ("--progress", "progress", True),
            ("--heartbeat-timeout 0.5", "heartbeat_timeout_s", 0.5),
            ("--no-timeouts", "deadlines", False),
            ("--run-dir d", "run_dir", Path("d")),
            ("--resume d", "resume", Path("d")),
            ("--fault a --fault b", "faults", ("a", "b")),
            ("--log-dir d", "log_dir", Path("d")),
            ("--tee all", "tee", None),
            ("--tee none", "tee", ()),
            ("--tee 3,1,3", "tee", (1, 3)),
            ("--json o.json", "json", Path("o.json")),
            ("--csv o.csv", "csv", Path("o.csv")),
            ("--list links", "list", "links"),
            ("--dry-run", "dry_run", True),
            ("-q", "quiet", True),
            ("-v", "verbose", True),
        ],
    )
    def test_each_flag(self, argv: str, name: str, value: object) -> None:
        assert getattr(parse(argv.split()), name) == value

    def test_a_flag_given_twice_has_its_last_value(self) -> None:
        assert parse(["--sips", "2", "--sips", "3"]).sips == 3

    def test_elements_replace_the_default_size(self) -> None:
        assert parse(["--n-elem", "8"]).sizes == ()

    @pytest.mark.parametrize(
        ("argv", "sizes"),
        [
            ("-b 1K -e 8K", (1024, 2048, 4096, 8192)),
            ("-b 1K -e 8K -f 4", (1024, 4096)),
            ("-b 1000 -e 9999 -f 3", (1000, 3000, 9000)),
            ("-b 4K -e 4K", (4096,)),
        ],
    )
    def test_sweeps(self, argv: str, sizes: tuple[int, ...]) -> None:
        assert parse(argv.split()).sizes == sizes


class TestRefusals:
    def test_every_number_has_a_most(self) -> None:
        found = []
        for action in launch_parser()._actions:
            if action.nargs is None and not action.choices and isinstance(_numbers(action, "3"), int | float):
                found.append(action.dest)
                assert _numbers(action, "9" * 20) is None, action.dest
        assert {"sips", "seed", "iters", "warmup", "n_elem", "bytes", "f", "root", "jitter", "timeout_s"} <= {*found}

    def test_a_switch_of_the_environment(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("AHBM_CHECK_INVARIANTS", "yes")
        assert refusal() == "AHBM_CHECK_INVARIANTS=yes: give 1 or 0, or unset it"

    @pytest.mark.parametrize("argv", ["--dtype f64", "--op median", "--engine ray", "--list everything"])
    def test_a_name_that_is_none(self, argv: str) -> None:
        line = refusal(*argv.split())
        assert f"invalid choice: '{argv.split()[1]}'" in line
        assert "choose from" in line


class TestFilesOfHosts:
    def test_one_a_line(self, tmp_path: Path) -> None:
        (tmp_path / "hosts").write_text("# mine\na:2\n\n  b  # the slow one\n")
        assert parse(["--hosts", f"@{tmp_path}/hosts"]).hosts == (("a", 2), ("b", None))

    def test_no_text(self, tmp_path: Path) -> None:
        (tmp_path / "hosts").write_bytes(b"\xff\xfe")
        assert refusal("--hosts", f"@{tmp_path}/hosts").endswith("cannot be read: it is not a text file")


class TestGivenOptions:
    def test_flags_and_script(self) -> None:
        assert options.given_options([]) == {}
        given = options.given_options(["-n", "3", "--tee", "none", "--set", "a=1", "s.py", "--sips", "3"])
        assert given == {"iters": "--iters", "tee": "--tee", "settings": "--set", "script": "s.py"}


class TestQuestions:
    @pytest.mark.parametrize("argv", [["--help"], ["-h"], ["--version"], ["--sips", "2", "--version"]])
    def test_they_end_well(self, argv: list[str]) -> None:
        with pytest.raises(ParserExit) as caught:
            parse(argv)
        assert caught.value.exit_code == 0
        assert "ahbm-launch" in caught.value.text


class TestScripts:
    @pytest.mark.parametrize(
        ("argv", "script", "as_module", "args"),
        [
            ("a.py", "a.py", False, ()),
            ("a.py --sips 3 x", "a.py", False, ("--sips", "3", "x")),
            ("-- a.py", "a.py", False, ()),
            ("-- a.py -- b", "a.py", False, ("--", "b")),
            ("-- -odd.py", "-odd.py", False, ()),
            ("a.py -m b", "a.py", False, ("-m", "b")),
            ("-m pkg.job x -q", "pkg.job", True, ("x", "-q")),
            ("-- -m pkg.job x", "pkg.job", True, ("x",)),
            ("", None, False, ()),
            ("--", None, False, ()),
        ],
    )
    def test_what_follows_belongs_to_it(self, argv: str, script: str | None, as_module: bool, args: tuple) -> None:
        chosen = parse(["--sips", "5", "--set", "a=1", "-q", *argv.split()])
        assert (chosen.script, chosen.as_module, chosen.script_args) == (script, as_module, args)
        assert (chosen.sips, chosen.settings, chosen.quiet) == (5, ("a=1",), True)

    def test_a_value_is_not_taken_for_the_script(self) -> None:
        chosen = parse(["--json", "a.py", "--no-verify-data", "b.py"])
        assert (chosen.json, chosen.script) == (Path("a.py"), "b.py")

    @pytest.mark.parametrize("flag", ["--dry-run", "-q", "-v", "--verify-data", "--no-verify-data"])
    def test_a_flag_without_a_value_takes_none(self, flag: str) -> None:
        assert parse([flag, "a.py"]).script == "a.py"


class TestResultFileOfARefusal:
    """Where ``--json`` names a file, also on a command line that is refused."""

    @pytest.mark.parametrize(
        ("argv", "file"),
        [
            ("--sips x --json o.json", "o.json"),
            ("--json=o.json --zzz", "o.json"),
            ("--zzz", None),
            ("--json", None),
            ("--zzz script.py --json theirs.json", None),
        ],
    )
    def test_it_is_found(self, argv: str, file: str | None) -> None:
        refusal(*argv.split())
        assert options.json_file(argv.split()) == (file and Path(file))


def test_every_flag_has_help() -> None:
    with pytest.raises(ParserExit) as caught:
        parse(["--help"])
    for action in options.launch_parser()._actions:
        assert action.help
        assert any(name in caught.value.text for name in action.option_strings)


def test_what_writes_files_is_of_one_run() -> None:
    """``ahbm-races`` and the reruns of ``--explain`` would write them again."""
    writing = {name for name, flag in FLAGS.items() if flag.type is output or flag.add.get("metavar") == "DIR"}
    assert writing == {"run_dir", "resume", "json", "csv", "csv_links", "trace_ccl", "oplog", "log_dir"}
    assert all(FLAGS[name].alone for name in writing)
    assert writing <= cli_races.FORBIDDEN


def test_the_default_size_is_that_of_no_flag() -> None:
    assert parse([]) == parse(["--bytes", "64K"])


class TestFlagsOfTheBuiltInJob:
    """A script makes its own tensors and calls, so that these would be ignored."""

    WORDS = (
        "--collective all_reduce",
        "--bytes 1K",
        "--n-elem 3",
        "-b 1K",
        "-e 1K",
        "-f 2",
        "--dtype f16",
        "--op sum",
        "--group 0,1",
        "--root 1",
        "--layout 1x1",
        "--in-place",
        "--out-of-place",
        "--iters 1",
        "--warmup 0",
    )

    def test_those_of_any_run_are_not(self) -> None:
        chosen = parse(["--algorithm", "a", "--seed", "3", "--no-verify-data", "a.py", "--bytes", "1K", "-n", "9"])
        assert (chosen.script, chosen.script_args) == ("a.py", ("--bytes", "1K", "-n", "9"))

    def test_the_help_has_them_in_a_group_of_their_own(self) -> None:
        with pytest.raises(ParserExit) as caught:
            parse(["--help"])
        group = caught.value.text.split("\nthe work without a script:\n")[1].split("\n\n")[0]
        named = [line.split(",")[0].split()[0] for line in group.splitlines() if line.startswith("  -")]
        flags = [words.split()[0] for words in self.WORDS]
        assert named == [{"--iters": "-n", "--warmup": "-w"}.get(flag, flag) for flag in flags]


def test_a_probe_reads_a_negative_size_too() -> None:
    with pytest.raises(ParserExit, match="argument --bytes: '-64K': a size must be positive, such as 64K"):
        parse_probe(["--from", "0.0.0", "--to", "0.1.0", "--bytes", "-64K"])


def test_one_default_type() -> None:
    assert parse([]).dtype == Job().dtype == DEFAULT_DTYPE == "f16"
    for make in (Torch.zeros, Torch.empty, Torch.ones, Torch.full):
        assert inspect.signature(make).parameters["dtype"].default == DEFAULT_DTYPE


def _numbers(action: argparse.Action, text: str) -> object:
    """A flag's value, or the first of its list; None for one that is refused."""
    try:
        value = getattr(launch_parser().parse_args([action.option_strings[-1], text]), action.dest)
    except ParserExit:
        return None
    return value[0] if isinstance(value, list) else value


def help_of(main: Callable[[list[str]], object], *words: str) -> str:
    """What a command prints with ``--help``."""
    with redirect_stdout(StringIO()) as out, suppress(SystemExit):
        main([*words, "--help"])
    return out.getvalue()


COMMANDS = {
    "ahbm-launch": launch.main,
    "ahbm-probe": probe.main,
    "ahbm-bench": bench.main,
    "ahbm-races": cli_races.main,
    "ahbm-broker": by_hand.broker_main,
    "ahbm-sip": by_hand.sip_main,
}


@pytest.mark.parametrize("name", COMMANDS)
def test_help_has_three_examples_and_names_the_pages(name: str) -> None:
    text = help_of(COMMANDS[name])
    assert len(re.findall(rf"^  {name} .", text.partition("examples:")[2], re.MULTILINE)) == 3
    for page in re.findall(r"docs/[\w-]+\.md", text.partition("Documentation:")[2]) or ["none"]:
        assert (ROOT / page).is_file()


@pytest.mark.parametrize(
    ("main", "words"),
    [(launch.main, ()), (probe.main, ()), *((bench.main, (name,)) for name in BENCHES.names())],
)
def test_help_ends_each_flag_with_its_default(main: Callable[[list[str]], object], words: tuple[str, ...]) -> None:
    flags = re.split(r"\n  (?=-)", help_of(main, *words).partition("examples:")[0].partition("Documentation:")[0])[1:]
    for flag in flags:
        if not flag.startswith(("-h", "--version")):
            assert flag.split("\n\n")[0].rstrip().endswith(")"), flag


def test_examples_are_command_lines_and_stated_defaults_those_of_the_config() -> None:
    for example in options.EXAMPLES:
        parse(example.split()[1:])
    text, system = " ".join(help_of(launch.main).split()), load().topology.system
    for value in (system.sips.count, system.sips.topology, system.sips.link, system.chip):
        assert f"({value})" in text
    for action in launch_parser()._actions:
        if action.dest == "variant":
            continue  # of the environment
        if isinstance(action.default, str) and action.default not in ("", argparse.SUPPRESS):
            assert action.help is not None
            assert f"({action.default})" in action.help
