"""A key of an earlier version is refused with the name of what replaces it, wherever it stands."""

from pathlib import Path
from typing import ClassVar

import pytest

from sipsim.chips.load import load
from sipsim.config.check import convert_part
from sipsim.config.components import ComponentsFile, Wire
from sipsim.config.document import Problem
from sipsim.config.model import AlgorithmEntry, IpcqKnobs
from sipsim.config.override import parse_set
from sipsim.config.section import Renamed, Section
from sipsim.errors import ConfigError


@pytest.fixture(autouse=True)
def _earlier_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Wire, "renamed", {"delay_ps": Renamed("ns_per_mm", "in ns: the old value divided by 1000")})
    monkeypatch.setattr(ComponentsFile, "renamed", {"switch": Renamed("router")})
    monkeypatch.setattr(AlgorithmEntry, "renamed", {"slots": Renamed("n_slots")})


IN_NS = "key 'delay_ps' in wire is now ns_per_mm; in ns: the old value divided by 1000"


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("wire: {delay_ps: 1000}", IN_NS),
        ("wire: {ns_per_mm: 1, delay_ps: 1000}", IN_NS),
        ("switch: {overhead_ns: 1}", "key 'switch' is now router"),
        ("wire: {delay: 1}", "unknown key 'delay' in wire; allowed: ns_per_mm"),
    ],
)
def test_in_a_file(tmp_path: Path, text: str, what: str) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load(config=path)
    assert str(caught.value) == f"{path}: {what}"


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("wire.delay_ps=1000", IN_NS),
        ("wire={delay_ps: 1000}", IN_NS),
        ("switch.overhead_ns=1", "key 'switch' is now router"),
        (
            "algorithms.intercube_allreduce.slots=4",
            "key 'slots' in algorithms.intercube_allreduce is now n_slots",
        ),
    ],
)
def test_in_a_flag(text: str, what: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(overrides=[parse_set(text)])
    assert str(caught.value) == f"--set {text}: {what}"


class Gadget(Section, frozen=True):
    """A kind with parameters of its own, one of which had another name."""

    width: int
    renamed: ClassVar[dict[str, Renamed]] = {"breadth": Renamed("width")}


def test_in_the_parameters_of_a_kind() -> None:
    found = convert_part({"breadth": 3}, Gadget, ("parts", "gadget"))
    assert found == Problem((("parts", "gadget", "breadth"),), "key 'breadth' in parts.gadget is now width")


def test_an_entry_of_an_algorithm_has_the_old_names_of_the_settings_that_it_overrides() -> None:
    assert set(IpcqKnobs.renamed) <= set(AlgorithmEntry.renamed)
