"""A definition of a user that is wrong is refused before anything starts, by a line that names it."""

import json
from pathlib import Path

import pytest

from launcher.isolation import isolated
from launcher.options import parse
from launcher.run.run import checked
from sipsim.core.errors import ConfigError

LINK = """
from sipsim.fabric.links.kind import LINK_KINDS, LinkKind

@LINK_KINDS.register(__name__)
class Mine(LinkKind, frozen=True):
    def wire_bytes(self, payload_bytes):
        return payload_bytes
{body}
"""
CHIP = """
from sipsim.chips.ahbm.chip import Ahbm
from sipsim.chips.api.chip import CHIPS

class Mine(Ahbm):
    def plan(self, resolved):
        {body}

CHIPS.register(__name__)(Mine())
"""
PRESET = {"kind": "users.mine", "source": "of the tests", "params": {"bandwidth_GBps": 8, "latency_ns": 10}}
USES = {
    LINK: ("--set", f"links.own={json.dumps(PRESET)}", "--link", "own"),
    CHIP: ("--set", "system.chip=users.mine"),
}
CASES = {
    "raises": (LINK, "    lookahead_ps = property(lambda self: 1 / 0)", r"mine\.py:\d+: <lambda> raised ZeroDivision"),
    "exits": (CHIP, "raise SystemExit(0)", r"users/mine\.py:\d+: plan raised SystemExit: 0$"),
    "no plan": (CHIP, "return None", r"^Mine\.plan returned None; return a RunPlan$"),
    "lookahead is no whole number": (
        LINK,
        "    def lookahead_ps(self, way_ps): return 10.5",
        r"^link 0\.E>1\.W, of kind Mine: its lookahead_ps is 10\.5; must be a whole number of ps, 0 or more$",
    ),
    "negative lookahead": (
        LINK,
        "    def lookahead_ps(self, way_ps): return -4",
        r"^link 0\.E>1\.W, of kind Mine: its lookahead_ps is -4; must be a whole number",
    ),
    "negative answer": (LINK, "    answer_ps = -1", r"of kind Mine: its answer_ps is -1; must be a whole number"),
}


@pytest.mark.parametrize(("source", "body", "line"), CASES.values(), ids=CASES)
def test_it_is_refused(source: str, body: str, line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "users").mkdir()
    (tmp_path / "users/mine.py").write_text(source.replace("{body}", body))
    argv = ["--sips", "4", "--topology", "torus_2d", *USES[source]]
    with isolated(), pytest.raises(ConfigError, match=line):
        checked(parse(argv), argv)


def test_an_error_of_the_simulator_is_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("launcher.run.run.check_flags", lambda _options: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        checked(parse([]), [])
