"""Config files and flags: defaults and their sources, merging, derived settings, and the origin named in an error."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from sipsim.chips.ahbm.collectives.settings import effective_ipcq, effective_world_size
from sipsim.chips.api.chip import CHIPS
from sipsim.chips.config import load
from sipsim.config import yaml as strict_yaml
from sipsim.config.check import refused
from sipsim.config.load import SECTION_FILES, Override, default_dir, parse_set
from sipsim.config.schema import IpcqKnobs, Resolved
from sipsim.core.errors import ConfigError

LineOf = Callable[..., str]
Write = Callable[[str, str | bytes], Path]
ALLREDUCE = "intercube_allreduce"


def sets(*texts: str) -> list[Override]:
    return [parse_set(text) for text in texts]


# --- the defaults -------------------------------------------------------------------------------------------


TENSTORRENT = [f"tenstorrent_{rate}" for rate in ("100g", "200g", "400g")]


@pytest.mark.ideal
def test_defaults_load() -> None:
    resolved = load()
    assert resolved.topology.system.sips.count == 2
    assert resolved.topology.sip.ports.E is None
    assert resolved.components.wire.ns_per_mm == 0.1
    assert resolved.ccl.defaults.algorithm == ALLREDUCE
    assert sorted(resolved.links.links) == ["ethernet_100g", "ethernet_400g", *TENSTORRENT, "ucie"]


def test_the_variant_lies_between_the_defaults_and_the_flags(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fused, plain = "intercube_allreduce_fused", ALLREDUCE
    assert load().ccl.defaults.algorithm == fused
    assert load(variant="adr").ccl.defaults.algorithm == plain
    assert load(variant="adr", overrides=sets(f"defaults.algorithm={fused}")).ccl.defaults.algorithm == fused
    monkeypatch.setenv("AHBM_VARIANT", "adr")
    assert load().ccl.defaults.algorithm == plain
    assert load(variant="").ccl.defaults.algorithm == fused


VARIANTS = "adr, doorbell, hbm3, hbm3e, hbm4, ideal"


@pytest.mark.parametrize(
    ("variant", "environment", "line"),
    [
        (
            "idel",
            "",
            f"--variant idel: unknown variant 'idel'; did you mean 'ideal'? allowed: {VARIANTS}",
        ),
        (None, "mine", f"AHBM_VARIANT mine: unknown variant 'mine'; allowed: {VARIANTS}"),
    ],
)
def test_an_unknown_variant(variant: str | None, environment: str, line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AHBM_VARIANT", environment)
    with pytest.raises(ConfigError) as refusal:
        load(variant=variant)
    assert str(refusal.value) == line


def test_resolved_survives_json() -> None:
    """Every process reads it as JSON."""
    resolved = load()
    again = msgspec.json.decode(msgspec.json.encode(resolved), type=Resolved)
    assert msgspec.to_builtins(again) == msgspec.to_builtins(resolved)


def leaf_lines(node: yaml.Node | None) -> list[int]:
    """Line numbers (from 0) of all scalar values."""
    if isinstance(node, yaml.MappingNode):
        return [line for _, value in node.value for line in leaf_lines(value)]
    if isinstance(node, yaml.SequenceNode):
        return [line for value in node.value for line in leaf_lines(value)]
    return [node.start_mark.line] if node else []


def comment_of(lines: list[str], number: int) -> str:
    """The comment on a line, else the comment lines just above it."""
    _, hash_mark, own = lines[number].partition(" # ")
    if hash_mark:
        return own
    above: list[str] = []
    while lines[number - 1 - len(above)].lstrip().startswith("#"):
        above.insert(0, lines[number - 1 - len(above)].lstrip("# "))
    return " ".join(above)


@pytest.mark.parametrize("stem", [*SECTION_FILES, "hbm", "variants/hbm3", "variants/hbm3e", "variants/hbm4"])
def test_every_default_has_its_unit_and_source(stem: str) -> None:
    text = (default_dir() / f"{stem}.yaml").read_text()
    numbers = leaf_lines(yaml.compose(text, Loader=yaml.SafeLoader))
    bare = [
        text.splitlines()[number]
        for number in numbers
        if not re.search(r"\[[^\]]+\] source: \S", comment_of(text.splitlines(), number))
    ]
    assert numbers
    assert bare == []


def test_every_default_key_is_written_out() -> None:
    """The files list every key; those of an algorithm, in some entry."""
    raw = {stem: strict_yaml.read_mapping(default_dir() / f"{stem}.yaml") for stem in SECTION_FILES}
    complete = msgspec.to_builtins(load())
    written = {key for entry in raw["ccl"]["algorithms"].values() for key in entry}
    for name, entry in raw["ccl"]["algorithms"].items():
        raw["ccl"]["algorithms"][name] = {**dict.fromkeys(written), **entry}
    optional = {"custom_links", "world_size"} | set(IpcqKnobs.__struct_fields__)
    assert missing_keys(complete, raw, ()) - optional == set()


def missing_keys(complete: Any, written: Any, path: tuple[str, ...]) -> set[str]:
    if not isinstance(complete, dict):
        return set()
    absent = {key for key in complete if key not in written}
    below = (missing_keys(complete[key], written[key], (*path, key)) for key in complete if key in written)
    return absent.union(*below)


def test_packaged_defaults_are_preferred(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a wheel the files are inside the package."""
    (here / "sipsim" / "_configs").mkdir(parents=True)
    monkeypatch.setattr("sipsim.__file__", str(here / "sipsim" / "__init__.py"))
    assert default_dir() == here / "sipsim" / "_configs"
    (here / "sipsim" / "_configs").rmdir()
    assert default_dir() == here / "configs"


def test_missing_default_file_is_named(line_of: LineOf, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sipsim.__file__", str(here / "sipsim" / "__init__.py"))
    assert line_of() == "configs/topology.yaml: cannot be read: No such file or directory"


@pytest.mark.parametrize(
    ("stem", "old", "new", "line"),
    [
        (
            "topology",
            "    count: 2",
            "    count: -1",
            "configs/topology.yaml: system.sips.count = -1: must be at least 1",
        ),
        ("components", "wire:", "wires:", "unknown key 'wires'; did you mean 'wire'?"),
        ("components", "wire:\n", "", "configs/components.yaml:"),
        ("links", "links:", "link:", "configs/links.yaml: unknown key 'link'; did you mean 'links'? allowed: links"),
    ],
)
def test_invalid_default_file_is_named(
    line_of: LineOf, here: Path, monkeypatch: pytest.MonkeyPatch, stem: str, old: str, new: str, line: str
) -> None:
    copy_defaults(here)
    spoilt = here / "configs" / f"{stem}.yaml"
    spoilt.write_text(spoilt.read_text().replace(old, new, 1))
    monkeypatch.setattr("sipsim.__file__", str(here / "sipsim" / "__init__.py"))
    assert line in line_of()


def test_missing_section_of_a_default_file(line_of: LineOf, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copy_defaults(here)
    (here / "configs" / "topology.yaml").write_text("system: {sips: {count: 2, topology: ring_1d, link: ucie}}\n")
    monkeypatch.setattr("sipsim.__file__", str(here / "sipsim" / "__init__.py"))
    assert line_of() == "configs/topology.yaml: sip: missing; it must be given"


def copy_defaults(here: Path) -> None:
    (here / "configs").mkdir()
    for stem in SECTION_FILES:
        (here / "configs" / f"{stem}.yaml").write_bytes((default_dir() / f"{stem}.yaml").read_bytes())


# --- merging ------------------------------------------------------------------------------------------------


def test_user_file_writes_only_what_differs(write: Write) -> None:
    config = write(
        "my.yaml", "system: {sips: {count: 4}}\nrouter: {overhead_ns: 2.5}\nlinks: {ucie: {params: {retimer_ns: 7}}}\n"
    )
    ccl = write("my_ccl.yaml", f"defaults: {{n_slots: 4}}\nalgorithms: {{{ALLREDUCE}: {{slot_size: 512}}}}\n")
    resolved = load(config, ccl)
    assert resolved.topology.system.sips.count == 4
    assert resolved.topology.system.sips.topology == "ring_1d"
    assert (resolved.components.router.overhead_ns, resolved.components.router.bandwidth_GBps) == (2.5, 64)
    assert resolved.links.links["ucie"].params == {**load().links.links["ucie"].params, "retimer_ns": 7}
    assert resolved.ccl.defaults.n_slots == 4
    assert resolved.ccl.algorithms[ALLREDUCE].slot_size == 512


def test_flags_override_files_and_later_flags_earlier_ones(write: Write) -> None:
    config = write("my.yaml", "system: {sips: {count: 4}}")
    assert load(config, overrides=sets("system.sips.count=5")).topology.system.sips.count == 5
    assert load(overrides=sets("system.sips.count=5", "system.sips.count=3")).topology.system.sips.count == 3


@pytest.mark.parametrize(
    ("text", "shape"), [("3x2", (3, 2)), ("[3,2]", (3, 2)), ("[ 2 , 3 ]", (2, 3)), ("6x1", (6, 1))]
)
def test_shape_spellings(text: str, shape: tuple[int, int]) -> None:
    overrides = sets("system.sips.count=6", "system.sips.topology=torus_2d", f"system.sips.shape={text}")
    assert load(overrides=overrides).topology.system.sips.shape == shape


def test_pair_spelling_is_for_pairs_only() -> None:
    resolved = load(overrides=sets(f"algorithms.{ALLREDUCE}.module=3x2"))
    assert resolved.ccl.algorithms[ALLREDUCE].module == "3x2"


def test_overrides_are_not_changed_by_loading() -> None:
    """A later ``--set`` below an earlier mapping."""
    params = dict(load().links.links["ethernet_100g"].params)
    preset = {"kind": "ethernet", "source": "test", "params": params}
    whole = Override("links.mine", preset, "--link-file x")
    changed = load(overrides=[whole, *sets("links.mine.params.latency_ns=3")])
    assert changed.links.links["mine"].params["latency_ns"] == 3
    assert params["latency_ns"] == 500


def test_new_preset_and_new_algorithm(write: Write) -> None:
    """Names are free where a file maps names to entries."""
    config = write(
        "my.yaml",
        "links: {slow: {kind: ucie, source: mine, params: {bandwidth_GBps: 1, fdi_to_fdi_ns: 1, reach_mm: 0, "
        "ns_per_mm: 0, retimers: 0, retimer_ns: 0, flit_bytes: 64, flit_overhead_bytes: 4}}}\n"
        "system: {sips: {link: slow}}\n",
    )
    ccl = write("c.yaml", "defaults: {algorithm: other}\nalgorithms: {other: {module: my.module, topology: none}}\n")
    resolved = load(config, ccl)
    assert resolved.links.links["slow"].params["flit_bytes"] == 64
    assert resolved.ccl.algorithms["other"].module == "my.module"


MINE = "algorithms: {ring: {module: mine.py, topology: ring_1d"


@pytest.mark.parametrize(
    ("entry", "texts", "slots"),
    [
        ("", [], (4, 16384)),
        (f"{MINE}}}}}", [], (8, 4096)),
        (f"{MINE}, n_slots: 2}}}}", [], (2, 4096)),
        ("algorithms: {ring: {slot_size: 512, module: mine.py}}", [], (8, 512)),
        ("algorithms: {ring: {slot_size: 512}}", [], (4, 512)),
        ("algorithms: {ring: {module: sipsim.collectives.algorithms.ring}}", [], (4, 16384)),
        ("", ["algorithms.ring.module=mine.py"], (8, 4096)),
        ("", ["algorithms.ring.module=mine.py", "algorithms.ring.n_slots=2"], (2, 4096)),
        ("", ["algorithms.ring.n_slots=2", "algorithms.ring.module=mine.py"], (2, 4096)),
        (f"{MINE}, n_slots: 4}}}}", ["algorithms.ring.module=other.py"], (4, 4096)),
    ],
)
def test_another_module_has_the_settings_that_its_user_gives(
    write: Write, entry: str, texts: list[str], slots: tuple[int, int]
) -> None:
    """What the default entry of that name says of its own module is dropped; where it is wired stays."""
    resolved = load(ccl=write("c.yaml", entry) if entry else None, overrides=sets(*texts))
    knobs = effective_ipcq(resolved, "ring")
    assert (knobs.n_slots, knobs.slot_size) == slots
    assert resolved.ccl.algorithms["ring"].topology == ("ring_1d" if MINE in entry else "none")


# --- effective values ---------------------------------------------------------------------------------------


def test_effective_ipcq_overrides_key_by_key() -> None:
    """``false`` and other falsy values of an entry count."""
    overrides = sets(
        "defaults.strict_validation=true",
        "defaults.n_slots=4",
        f"algorithms.{ALLREDUCE}={{strict_validation: false, slot_size: 1024, buffer_kind: hbm}}",
    )
    knobs = effective_ipcq(load(overrides=overrides), ALLREDUCE)
    assert isinstance(knobs, IpcqKnobs)
    assert (knobs.strict_validation, knobs.n_slots, knobs.slot_size, knobs.buffer_kind) == (False, 4, 1024, "hbm")
    assert (knobs.vc_chunk_size, knobs.ipcq_credit_size_bytes, knobs.backpressure) == (256, 16, "sleep")


@pytest.mark.parametrize(
    "texts",
    [
        [f"algorithms.{ALLREDUCE}.rank_per=sip"],
        [f"algorithms.{ALLREDUCE}.topology=ring_1d", "sip.cube_mesh={w: 1, h: 1}", "cube.pes=1"],
        ["sip.cube_mesh={w: 1, h: 1}"],
        ["sip.cube_mesh={w: 2, h: 1}", "system.sips.count=1"],
        ["defaults.world_size=2"],
        ["defaults.world_size=5", f"algorithms.{ALLREDUCE}.world_size=2"],
        [f"algorithms.{ALLREDUCE}.world_size=2"],
    ],
)
def test_effective_world_size(texts: list[str]) -> None:
    """Entry, then defaults, then every place."""
    assert effective_world_size(load(overrides=sets(*texts)), ALLREDUCE) == 2


# --- who is to blame ----------------------------------------------------------------------------------------


def test_user_file_is_named(line_of: LineOf, write: Write) -> None:
    config = write("my.yaml", "system: {sips: {count: -1}}")
    assert line_of(config) == "my.yaml: system.sips.count = -1: must be at least 1"


def test_ccl_file_is_named(line_of: LineOf, write: Write) -> None:
    ccl = write("c.yaml", f"algorithms: {{{ALLREDUCE}: {{rank_per: 3}}}}")
    assert line_of(ccl=ccl).startswith(f"c.yaml: algorithms.{ALLREDUCE}.rank_per = 3: must be one of: ")


def test_launcher_flag_is_named_as_the_user_wrote_it(line_of: LineOf) -> None:
    assert line_of(overrides=[Override("system.sips.count", -1, "--sips -1")]) == (
        "--sips -1: system.sips.count = -1: must be at least 1"
    )


def test_the_flag_that_conflicts_is_named(line_of: LineOf) -> None:
    """The flag that caused the conflict, not the file of the other value."""
    line = line_of(overrides=[Override("sip.cube_mesh.w", 1, "--mesh-w 1")], texts=["sip.ports.E=7"])
    assert line == "--set sip.ports.E=7: sip.ports.E = 7: no such cube in a 1x4 mesh; allowed: null, 0 to 3"
    swapped = line_of(overrides=[*sets("sip.ports.E=7"), Override("sip.cube_mesh.w", 1, "--mesh-w 1")])
    assert swapped == "--mesh-w 1: sip.ports.E = 7: no such cube in a 1x4 mesh; allowed: null, 0 to 3"


def test_latest_flag_is_named_after_a_reset(line_of: LineOf) -> None:
    shape = Override("system.sips.topology", "torus_2d", "--topology torus_2d")
    twice = [Override("system.sips.count", count, f"--sips {count}") for count in (4, 5)]
    line = line_of(overrides=[twice[0], shape, twice[1]])
    assert line == (
        "--sips 5: torus_2d needs a perfect square of SIPs or a shape, and 5 is no square; take --sips 4, "
        "--shape 5x1 or --topology ring_1d"
    )


def test_a_replaced_mapping_forgets_old_origins(line_of: LineOf, write: Write) -> None:
    config = write("my.yaml", "sip: {ports: {E: 2}}")
    none, others = Override("sip.ports", None, "--no-ports"), Override("sip.ports", {"E": 99}, "--ports E=99")
    assert line_of(config, overrides=[none]) == ("--no-ports: sip.ports = null: must be a mapping; allowed: E, N, S, W")
    assert line_of(config, overrides=[none, others]) == (
        "--ports E=99: sip.ports.E = 99: no such cube in a 4x4 mesh; allowed: null, 0 to 15"
    )


@pytest.mark.parametrize("key", ["defaults.vc_chunk_header_bytes", f"algorithms.{ALLREDUCE}.vc_chunk_header_bytes"])
@pytest.mark.parametrize("value", ["-1", "4097", "1.5", "true", "x"])
def test_a_header_that_no_chunk_can_have_is_named(line_of: LineOf, key: str, value: str) -> None:
    assert f": {key} = " in line_of(overrides=sets(f"{key}={value}"))


def test_a_header_needs_a_chunk(line_of: LineOf) -> None:
    chunk = "defaults.vc_chunk_size"
    assert f": {chunk} = null: " in line_of(overrides=sets("defaults.vc_chunk_header_bytes=16", f"{chunk}=null"))


def test_a_rule_that_returns_its_problem_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    """As rules of earlier versions did: also one of a chip kind."""

    def odd(resolved: Resolved) -> object:
        return refused(("cube", "pes"), resolved.topology.cube.pes, "must be odd")

    monkeypatch.setattr(type(CHIPS.get("ahbm")), "rules", (odd,))
    with pytest.raises(ConfigError) as refusal:
        load(overrides=sets("cube.pes=4"))
    assert str(refusal.value) == "--set cube.pes=4: cube.pes = 4: must be odd"
