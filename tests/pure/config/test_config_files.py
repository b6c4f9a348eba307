"""Invalid files: the strict reader, its limits and line numbers, and random input, which never raises another error."""

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sipsim.chips.config import load
from sipsim.config import yaml as strict_yaml
from sipsim.config.load import SECTION_FILES, Override, parse_set
from sipsim.config.yaml import YamlMistake, parse_text
from sipsim.core.errors import ConfigError

LineOf = Callable[..., str]
Write = Callable[[str, str | bytes], Path]
TOP_LEVEL = ", ".join(sorted(key for file in SECTION_FILES.values() for key in file.__struct_fields__))
NOT_CCL = ", ".join(key for key in TOP_LEVEL.split(", ") if key not in SECTION_FILES["ccl"].__struct_fields__)


def sets(*texts: str) -> list[Override]:
    return [parse_set(text) for text in texts]


# --- mistakes in files --------------------------------------------------------------------------------------

BAD_FILES = [
    (b"", "bad.yaml:1: the file must contain a mapping of keys to values"),
    (b"# nothing\n", "bad.yaml:1: the file must contain a mapping of keys to values"),
    (b"3\n", "bad.yaml:1: the file must contain a mapping of keys to values"),
    (b"- a\n", "bad.yaml:1: the file must contain a mapping of keys to values"),
    (b"a: 1\nb: [1, 2\n", "bad.yaml:3: not valid YAML: did not find expected ',' or ']'"),
    (b"a: b: c\n", "bad.yaml:1: not valid YAML: mapping values are not allowed in this context"),
    (b"wire: {ns_per_mm: 1}\nwire: {}\n", "bad.yaml:2: duplicate key 'wire'; remove one of the two"),
    (b"wire:\n  ns_per_mm: 1\n  'ns_per_mm': 2\n", "bad.yaml:3: duplicate key 'ns_per_mm'; remove one of the two"),
    (b"wire: &w {ns_per_mm: 1}\n", "bad.yaml:1: anchor &w is not allowed; write the value out"),
    (b"wire: 1\nx: *w\n", "bad.yaml:2: alias *w is not allowed; write the value out"),
    (b"wire: !!python/object:os.system 1\n",
     "bad.yaml:1: tag 'tag:yaml.org,2002:python/object:os.system' is not allowed; write the value without it"),
    (b"? [a, b]\n: 1\n", "bad.yaml:1: a key must be text, not a list or a mapping"),
    (b"---\na: 1\n---\nb: 1\n", "bad.yaml:3: a second document; write all keys in one document"),
    (b"a: 1\nb: \xff\n", "bad.yaml:2: not valid UTF-8: invalid start byte"),
    (b"a: 1\nb: \x01\n", "bad.yaml:2: not valid YAML: control character '\\x01'"),
    (b"a: " + b"[" * 100_000, "bad.yaml:1: nested deeper than 24 levels; no key needs that"),
    (b"- " * 100_000, "bad.yaml:1: nested deeper than 24 levels; no key needs that"),
    (b"a: " + b"9" * 41, "bad.yaml:1: a number of more than 40 digits; quote it if it is text"),
    (b"a" * (2**20 + 1), "bad.yaml: larger than 1048576 bytes; a config file is a few KiB"),
    (b"wires: {ns_per_mm: 1}\n", f"bad.yaml: unknown key 'wires'; did you mean 'wire'? allowed: {NOT_CCL}"),
    (b"defaults: {n_slots: 1}\n", "bad.yaml: key 'defaults' belongs to ccl.yaml; give the key in a file for --ccl"),
    (b"<<: {wire: 1}\n", f"bad.yaml: unknown key '<<'; allowed: {NOT_CCL}"),
]  # fmt: skip


@pytest.mark.fault
@pytest.mark.parametrize("has_c", [True, False], ids=["C parser", "Python parser"])
@pytest.mark.parametrize(("content", "line"), BAD_FILES, ids=[line[:60] for _, line in BAD_FILES])
def test_bad_file(
    line_of: LineOf, write: Write, monkeypatch: pytest.MonkeyPatch, content: bytes, line: str, has_c: bool
) -> None:
    """The same line with both, except for the parser's own text."""
    if not has_c:
        monkeypatch.setattr(strict_yaml, "_LOADER", yaml.SafeLoader)
    found = line_of(write("bad.yaml", content))
    assert found == line or (not has_c and "not valid YAML" in line and "not valid YAML" in found)


def test_config_key_in_ccl_file(line_of: LineOf, write: Write) -> None:
    ccl = write("c.yaml", "system: {sips: {count: 2}}")
    assert line_of(ccl=ccl) == "c.yaml: key 'system' belongs to topology.yaml; give the key in a file for --config"


@pytest.mark.parametrize(
    ("name", "reason"),
    [("missing.yaml", "No such file or directory"), (".", "Is a directory"), ("nul\0byte", "embedded null byte")],
)
def test_unreadable_file(line_of: LineOf, here: Path, name: str, reason: str) -> None:
    assert line_of(Path(name)) == f"{strict_yaml.one_line(name)}: cannot be read: {reason}"


def test_byte_order_mark_is_accepted(write: Write) -> None:
    assert load(write("my.yaml", b"\xef\xbb\xbfcube: {pes: 4}\n")).topology.cube.pes == 4


def test_paths_are_shown_from_the_working_directory(line_of: LineOf, write: Write, here: Path) -> None:
    write("my.yaml", "cube: {pes: 0}")
    assert line_of(here / "my.yaml") == "my.yaml: cube.pes = 0: must be at least 1"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", None),
        ("~", None),
        ("null", None),
        ("yes", "yes"),
        ("off", "off"),
        ("on", "on"),
        ("N", "N"),
        ("True", True),
        ("12", 12),
        ("+12", 12),
        ("012", 12),
        ("0x10", 16),
        ("1_000", "1_000"),
        ("1e3", 1000.0),
        ("-.5", -0.5),
        ("1.", 1.0),
        ("1:30", "1:30"),
        ("2024-01-01", "2024-01-01"),
        ("'12'", "12"),
        ('"a\\nb"', "a\nb"),
        ("[1, {a: b}]", [1, {"a": "b"}]),
        ("{1: 2}", {"1": 2}),
    ],
)
def test_plain_values(text: str, value: Any) -> None:
    """YAML 1.2's core schema."""
    found = parse_text(text)
    assert found == value
    assert type(found) is type(value)


def test_half_a_surrogate_pair_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pure-Python parser lets it through."""
    monkeypatch.setattr(strict_yaml, "_LOADER", yaml.SafeLoader)
    with pytest.raises(YamlMistake, match="half a surrogate pair"):
        parse_text('"\\ud800"')


# --- whatever is written ------------------------------------------------------------------------------------

json_like = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8) | st.integers(), inner, max_size=3),
    max_leaves=12,
)
real_paths = st.sampled_from(
    ["system.sips", "system.sips.shape", "system.sips.custom_links", "sip.ports.E", "wire.ns_per_mm", "links",
     "links.ucie", "links.ucie.params", "links.ucie.params.retimer_ns", "defaults.n_slots", "algorithms",
     "algorithms.x", "defaults"]
)  # fmt: skip
some_paths = real_paths | st.text(max_size=20)


def one_line_or_fine(config: Path | None, overrides: Sequence[Override] = (), texts: Sequence[str] = ()) -> None:
    line = "fine"
    try:
        load(config, None, [*overrides, *sets(*texts)])
    except ConfigError as error:
        line = str(error)
    assert line.isprintable()
    assert len(line) < 2000


@settings(max_examples=300)
@example([("links.ucie", {5: 1})])
@example([("links", None), ("links", {0: None}), ("links.ucie.params", None)])
@given(st.lists(st.tuples(some_paths, json_like), max_size=4))
def test_random_overrides_raise_config_errors_only(items: list[tuple[str, Any]]) -> None:
    one_line_or_fine(None, [Override(path, value, "--set x") for path, value in items])


@settings(max_examples=300)
@example("a\nb")
@given(st.text(max_size=60) | st.tuples(real_paths, st.text(max_size=20)).map("=".join))
def test_random_set_texts_raise_config_errors_only(text: str) -> None:
    one_line_or_fine(None, texts=[text])


@pytest.fixture(scope="module")
def garbage_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("garbage") / "g.yaml"


yaml_bits = st.lists(
    st.sampled_from(
        ["wire", ": ", "\n", "  ", "- ", "{", "}", "[", "]", ",", "&a ", "*a", "!t ", "'", '"', "#", "|", ">", "?", "%",
         "---", "...", "\t", "1", ".nan", "system", "sips", "count", "null", "<<", "\\", "@", "é", "\u2028", "\x85"]
    ),
    max_size=25,
).map("".join)  # fmt: skip


@settings(max_examples=400)
@given(
    st.binary(max_size=80) | yaml_bits.map(str.encode) | st.text(max_size=60).map(lambda t: t.encode(errors="replace"))
)
def test_random_files_raise_config_errors_only(garbage_file: Path, content: bytes) -> None:
    garbage_file.write_bytes(content)
    one_line_or_fine(garbage_file)


@settings(max_examples=200)
@example({"links": {"a\nb": 3}})
@given(st.dictionaries(st.sampled_from(sorted({*TOP_LEVEL.split(", "), "x"})), json_like, max_size=3))
def test_random_mappings_in_files_raise_config_errors_only(garbage_file: Path, values: dict[str, Any]) -> None:
    garbage_file.write_text(yaml.safe_dump(values), encoding="utf-8", errors="replace")
    one_line_or_fine(garbage_file)


numbers = st.floats(allow_nan=False, allow_infinity=False, min_value=0, max_value=1e6)


@pytest.mark.ideal
@given(numbers)
def test_any_allowed_number_is_kept(value: float) -> None:
    assert load(overrides=sets(f"hbm.read_latency_ns={value!r}")).components.hbm.read_latency_ns == value
    assert math.isfinite(value)
