"""The keywords of ``launcher.api.run``: each is a flag of ``ahbm-launch``, with its checks and its messages."""

from pathlib import Path
from typing import Any

import pytest

from launcher.api import TERMINAL, command_line, parsed
from launcher.options import launch_parser, parse
from sipsim.core.errors import ConfigError


def words(script: Any = None, script_args: Any = (), as_module: bool = False, **keywords: Any) -> list[str]:
    return command_line(script, script_args, as_module, keywords)


SAME = {
    "nothing": ({}, ""),
    "numbers": ({"sips": 4, "iters": 3, "timeout": 2.5}, "--sips 4 -n 3 --timeout 2.5"),
    "text": ({"topology": "torus_2d", "shape": "3x2"}, "--topology torus_2d --shape 3x2"),
    "one size": ({"bytes": "64K"}, "--bytes 64K"),
    "sizes": ({"bytes": ["64K", 131072]}, "--bytes 64K,131072"),
    "a letter": ({"b": "8K", "e": "32K", "f": 2}, "-b 8K -e 32K -f 2"),
    "a name with a dash": ({"n_elem": 24, "max_restarts": 1}, "--n-elem 24 --max-restarts 1"),
    "yes": ({"explain_sync": True, "no_timeouts": True}, "--explain-sync --no-timeouts"),
    "no": ({"explain_sync": False, "no_timeouts": False}, ""),
    "how far": ({"progress": True, "max_sim_time": "30us"}, "--progress --max-sim-time 30us"),
    "both ways": ({"verify_data": False}, "--no-verify-data"),
    "both ways, yes": ({"verify_data": True}, "--verify-data"),
    "several times": ({"set": ["cube.pes=4", "cube.hbm_MiB_per_pe=2"]}, "--set cube.pes=4 --set cube.hbm_MiB_per_pe=2"),
    "once": ({"set": "cube.pes=4", "fault": ("kill:1@join",)}, "--set cube.pes=4 --fault kill:1@join"),
    "ranks": ({"tee": (0, 1)}, "--tee 0,1"),
    "hosts": ({"hosts": ("a:2", "b:1"), "engine": "ssh"}, "--hosts a:2,b:1 --engine ssh"),
    "a path": ({"json": Path("a/b.json")}, "--json a/b.json"),
    "the default": ({"sips": None, "check_invariants": None}, ""),
    "a script": ({"script": Path("s.py"), "script_args": ("--sips", 3), "sips": 2}, "--sips 2 s.py --sips 3"),
    "a script like a flag": ({"script": "-s.py"}, "-- -s.py"),
    "a module": ({"script": "pkg.mod", "as_module": True, "script_args": ["x"]}, "-m pkg.mod x"),
}


@pytest.mark.parametrize(("keywords", "flags"), SAME.values(), ids=SAME)
def test_keywords_are_flags(keywords: dict[str, Any], flags: str) -> None:
    assert parsed(words(**keywords)) == parse(flags.split())


def test_every_flag_but_those_of_the_terminal_has_a_keyword() -> None:
    """``words`` takes None for each: a name that is no keyword would raise."""
    longest = [max(action.option_strings, key=len).lstrip("-") for action in launch_parser()._actions]
    names = {"verify_data" if name == "no-verify-data" else name.replace("-", "_") for name in longest}
    assert names >= TERMINAL
    assert words(**dict.fromkeys(names - TERMINAL)) == []
    for name in TERMINAL:
        with pytest.raises(ConfigError, match=f"unknown keyword '{name}'"):
            words(**{name: True})


BAD = {
    "an unknown one": (
        {"topolgy": "ring_1d"},
        "unknown keyword 'topolgy'; did you mean 'topology'? allowed: algorithm, ",
    ),
    "the destination of a flag": ({"timeout_s": 3}, "unknown keyword 'timeout_s'; did you mean 'timeout'? "),
    "a bad value": ({"sips": 0}, "argument --sips: '0' must be a whole number of at least 1"),
    "a value that looks like a flag": ({"sips": "--json"}, "argument --sips: '--json' must be a whole number"),
    "no truth": ({"explain_sync": 1}, "explain_sync=1: must be True or False"),
    "a truth": ({"json": True}, "json=True: must be text, a number, a path, or a sequence of them"),
    "standard output": (
        {"csv": "-"},
        "csv='-': a run from Python prints nothing; name a file, or take the outcome's document",
    ),
    "a flag of the built-in job": ({"script": "s.py", "bytes": 64}, "--bytes: has no effect with a script"),
    "a mapping": (
        {"set": {"cube.pes": 4}},
        "set={'cube.pes': 4}: must be text, a number, a path, or a sequence of them",
    ),
    "two sizes": ({"bytes": 64, "n_elem": 3}, "give one of --bytes, --n-elem and -b/-e"),
    "arguments for nothing": ({"script_args": ["x"]}, "script_args and as_module need a script"),
    "a module of no name": ({"as_module": True}, "script_args and as_module need a script"),
}


def test_a_wrong_switch_of_the_environment_is_refused_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AHBM_CHECK_INVARIANTS", "yes")
    with pytest.raises(ConfigError, match="AHBM_CHECK_INVARIANTS=yes"):
        parsed(words(sips=2))


@pytest.mark.parametrize(("keywords", "said"), BAD.values(), ids=BAD)
def test_what_is_refused(keywords: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parsed(words(**keywords))
    assert str(caught.value).startswith(said)
