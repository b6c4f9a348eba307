"""Mistakes in a value, a key or a flag: each rule has a refusal; what has no effect; the edges that are allowed.

The refusals themselves are a transcript, ``inproc/transcripts/config.txt``.
"""

import copy
import pickle
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from sipsim.chips.ahbm.collectives.rules import check_overrides_of_job
from sipsim.chips.api.chip import CHIPS
from sipsim.chips.config import RULES, chip_rules_hold, load
from sipsim.config.check import Problem
from sipsim.config.load import Override, _defaults, apply, convert, parse_set
from sipsim.config.schema import Section
from sipsim.core.errors import ConfigError
from sipsim.fabric.links.rules import link_kinds_frame_payloads

ROOT = Path(__file__).resolve().parents[3]
ALLREDUCE = "intercube_allreduce"


def sets(*texts: str) -> list[Override]:
    return [parse_set(text) for text in texts]


def test_a_problem_can_be_copied_and_pickled() -> None:
    problem = Problem((("system", "sips"), ("wire", 0)), "system.sips: no", Section)
    problem.cube = 3
    for again in (copy.deepcopy(problem), pickle.loads(pickle.dumps(problem))):
        assert (type(again), str(again), vars(again)) == (Problem, str(problem), vars(problem))


NOT_SINGLE = (chip_rules_hold, link_kinds_frame_payloads)
"""A chip's rules are applied together; only a link kind of a user's own breaks the other (``test_ports``)."""
SINGLE_RULES = [*(rule for rule in RULES if rule not in NOT_SINGLE), *CHIPS.get("ahbm").rules]


REFUSED = re.compile(r"^\$ ahbm-launch --set (.*)\n! ahbm-launch: --set (.*)$", re.MULTILINE)


def test_every_rule_has_a_refusal() -> None:
    """A new rule needs one in the transcript."""
    fired = set()
    for words, told in REFUSED.findall((ROOT / "tests/inproc/transcripts/config.txt").read_text()):
        (text,) = shlex.split(words)
        line = told.removeprefix(f"{text}: ")
        config = defaults_with(text)
        # The rules behind the one that fires expect that it has held.
        fired.add(next((rule for rule in SINGLE_RULES if fires(rule, config, line)), None))
    assert fired - {None} == set(SINGLE_RULES)


def fires(rule: Any, config: Any, line: str) -> bool:
    """Whether the rule finds this problem; never in a setting that the schema refuses."""
    try:
        if config:
            rule(config)
    except Problem as problem:
        return str(problem) == line
    except LookupError:
        pass
    return False


def defaults_with(text: str) -> Any:
    """The defaults with one setting, None if the schema refuses it."""
    document = _defaults()
    try:
        apply(document, parse_set(text))
        return convert(document)
    except (ConfigError, LookupError):
        return None


FITS = [
    "system.sips.count=1",
    "system.sips.shape=2x1",
    "wire.ns_per_mm=0",
    "wire.ns_per_mm=1e-3",
    "wire.ns_per_mm=1000000",
    "cube.pes=1",
    "sip.ports.E=15",
    "links.ethernet_100g.params.latency_ns=0.001",
    "defaults={hw_strict: true, n_slots: 1, slot_size: 1}",
    "defaults={credit_virtual_channel: true, credit_return_mode: piggyback}",
    "defaults.n_slots=256",
    "defaults={buffer_kind: sram, n_slots: 1024}",
    "defaults={buffer_kind: hbm, n_slots: 65536, slot_size: 32768}",
    "defaults.world_size=32",
    "defaults.world_size=1",
    f"algorithms.{ALLREDUCE}={{topology: ring_1d, world_size: 256}}",
    f"algorithms.{ALLREDUCE}={{topology: mesh_2d}}",
    f"algorithms.{ALLREDUCE}={{topology: mesh_2d, world_size: 49}}",
    f"algorithms.{ALLREDUCE}={{topology: custom, world_size: 32}}",
    f"algorithms.{ALLREDUCE}={{rank_per: sip, world_size: 2}}",
    f"algorithms.{ALLREDUCE}.root_cube=15",
    f"algorithms.{ALLREDUCE}.buffer_kind=null",
    f"algorithms.{ALLREDUCE}.opposites={{Up: Down, Down: Up, W: E}}",
    f"algorithms.{ALLREDUCE}.opposites.Up=Down",
    "system.sips={topology: custom, custom_links: [{a: 0, a_port: E, b: 1, b_port: W}]}",
]


@pytest.mark.parametrize("text", FITS)
def test_edges_that_are_allowed(text: str) -> None:
    """The last value before each refusal."""
    load(overrides=sets(text))


CONTROLLER = "hbm={kind: hbm_controller, params: {preset: hbm3_6400}}"
OWN_MODE = [name for name, entry in load().ccl.algorithms.items() if entry.credit_return_mode]


def test_a_channel_for_credits_that_none_takes() -> None:
    """Piggybacked credits that leave alone go over the fabric, so it has an effect as long as any entry has those."""
    channel = "defaults.credit_virtual_channel=true"
    at_load = load(overrides=sets(channel))
    check_overrides_of_job(at_load, sets(channel), ["ring"])
    with pytest.raises(ConfigError, match=r"--set defaults\.credit_virtual_channel=true: .* has no effect with"):
        check_overrides_of_job(at_load, sets(channel), [ALLREDUCE])
    fast = sets(*(f"algorithms.{name}.credit_return_mode=fast_path" for name in OWN_MODE))
    with pytest.raises(ConfigError, match="has no effect with credit_return_mode fast_path, whose credits have a dedi"):
        load(overrides=[*sets(channel), *fast])


UNUSED = "hbm.read_latency_ns = 50: has no effect with hbm.kind = hbm_controller; set hbm.params.front_end_ns, or "


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        (["hbm.read_latency_ns=50"], UNUSED + "hbm.kind=null"),
        (["hbm.read_latency_ns=99"], None),
        (["hbm.kind=null", "hbm.read_latency_ns=50"], None),
        (["hbm.read_latency_ns=50", "hbm.kind=null"], None),
        (["hbm.write_latency_ns=50"], None),
        (["tcm.read_latency_ns=50", "sram.read_latency_ns=50"], None),
        (
            ["tcm={kind: hbm_controller, params: {preset: hbm3_6400}}", "tcm.read_latency_ns=50"],
            (UNUSED + "hbm.kind=null").replace("hbm.", "tcm."),
        ),
    ],
)
def test_a_latency_that_the_kind_of_its_memory_does_not_use(settings: list[str], told: str | None) -> None:
    if told is None:
        load(overrides=sets(*settings))
        return
    with pytest.raises(ConfigError) as caught:
        load(overrides=sets(*settings))
    assert str(caught.value) == f"--set {next(each for each in settings if 'read' in each)}: {told}"


def test_one_that_the_variant_uses() -> None:
    load(variant="ideal", overrides=sets("hbm.read_latency_ns=50"))
    with pytest.raises(ConfigError):
        load(variant="ideal", overrides=sets("hbm.read_latency_ns=50", CONTROLLER))


def test_one_of_a_file(tmp_path: Path) -> None:
    """A copy of the default file with another value elsewhere is no mistake."""
    path = tmp_path / "mine.yaml"
    path.write_text("hbm: {read_latency_ns: 99, overhead_ns: 2}\n")
    load(config=path)
    path.write_text("hbm: {read_latency_ns: 50}\n")
    with pytest.raises(ConfigError, match=r"mine\.yaml: hbm\.read_latency_ns = 50: has no effect with hbm\.kind"):
        load(config=path)


CCL_FILE = """
algorithms:
  intercube_allreduce: {n_slots: 4, backpressure: poll}
  other: {module: other, topology: ring_1d, n_slots: 2}
"""


@pytest.mark.ideal
@pytest.mark.parametrize(
    ("settings", "line"),
    [
        (
            ["defaults.n_slots=16"],
            "--set defaults.n_slots=16: has no effect, since algorithms.intercube_allreduce.n_slots = 4; "
            "set algorithms.intercube_allreduce.n_slots instead",
        ),
        (
            ["defaults={n_slots: 8, backpressure: sleep}", "algorithms.intercube_allreduce.n_slots=2"],
            "--set defaults={n_slots: 8, backpressure: sleep}: has no effect, since "
            "algorithms.intercube_allreduce.backpressure = 'poll'; set algorithms.intercube_allreduce.backpressure "
            "instead",
        ),
    ],
)
def test_an_override_of_a_default_that_an_entry_hides(tmp_path: Path, settings: list[str], line: str) -> None:
    path = tmp_path / "ccl.yaml"
    path.write_text(CCL_FILE)
    with pytest.raises(ConfigError) as caught:
        check_overrides_of_job(load(ccl=path, overrides=sets(*settings)), sets(*settings), [ALLREDUCE])
    assert str(caught.value) == line


HIDDEN = "defaults.credit_return_mode=fabric"


@pytest.mark.parametrize(
    ("names", "more", "line"),
    [
        (
            ["ring"],
            [],
            f"--set {HIDDEN}: has no effect, since algorithms.ring.credit_return_mode = 'piggyback'; "
            "set algorithms.ring.credit_return_mode instead",
        ),
        (
            ["ring", "direct"],
            [],
            f"--set {HIDDEN}: has no effect, since algorithms.ring.credit_return_mode = 'piggyback', and the other "
            "algorithms of the job also set credit_return_mode; set algorithms.ring.credit_return_mode instead",
        ),
        (["ring", ALLREDUCE], [], None),
        (["ring", "direct"], ["algorithms.direct.credit_return_mode=fabric"], None),
    ],
)
def test_an_override_that_all_algorithms_of_a_job_hide(names: list[str], more: list[str], line: str | None) -> None:
    """Host scripts may have messages between two ranks, which take it from ``defaults``: at load it is not refused."""
    overrides = sets(HIDDEN, *more, "defaults.algorithm=ring")
    told = None
    try:
        check_overrides_of_job(load(overrides=overrides), overrides, names)
    except ConfigError as error:
        told = str(error)
    assert told == line


SCHEDULES = """
algorithms:
  mine: {module: MINE, topology: none, hw_strict: true}
"""


@pytest.mark.parametrize(
    ("source", "is_refused"),
    [
        ("def schedule(task):\n    return 1 / 0\n1 / 0", True),
        ("from sipsim.collectives.algorithms.ring import schedule\n", True),
        ("from sipsim.collectives.algorithms import ring\nschedule = ring.schedule\n", True),
        ("def kernel(t_ptr, schedule, tl):\n    schedule = 1\n", False),
        ("def schedule(", False),
    ],
)
def test_a_schedule_has_no_setting_of_a_pe(tmp_path: Path, source: str, is_refused: bool) -> None:
    """Its module is not run, and no other algorithm is chosen."""
    (tmp_path / "mine.py").write_text(source)
    path = tmp_path / "ccl.yaml"
    path.write_text(SCHEDULES.replace("MINE", str(tmp_path / "mine.py")))
    told = ""
    try:
        load(ccl=path)
    except ConfigError as error:
        told = str(error)
    setting = "algorithms.mine.hw_strict = true: hw_strict applies to the queue pairs of all algorithms"
    what = f"{setting}; set defaults.hw_strict instead"
    assert told.endswith(f"ccl.yaml: {what}") if is_refused else told == ""


@pytest.mark.parametrize(
    "settings",
    [
        ["defaults.n_slots=4"],
        ["defaults.slot_size=64"],
        ["defaults.n_slots=2", "algorithms.intercube_allreduce.n_slots=8"],
    ],
)
def test_an_override_of_a_default_that_holds_is_not(tmp_path: Path, settings: list[str]) -> None:
    path = tmp_path / "ccl.yaml"
    path.write_text(CCL_FILE)
    load(ccl=path, overrides=sets(*settings))
