"""The guide's table from the documents' names to those of this project: each of the latter exists."""

import importlib
import re
from pathlib import Path

import pytest

from launcher import options
from sipsim.chips.tensix.edm.builder import EriscDataMoverBuilder
from sipsim.chips.tensix.eth_dataflow import EthDataflow
from sipsim.chips.tensix.fabric.fabric import Fabric
from sipsim.chips.tensix.host import PARTS, Metal
from sipsim.chips.tensix.params import EthernetParams, RiscParams

ROOT = Path(__file__).resolve().parents[3]
HEAD = "| name of the document | here | what differs |"
OBJECTS = {"tt": (Metal, *PARTS), "df": (EthDataflow,), "edm": (EriscDataMoverBuilder,), "fabric": (Fabric,)}
SECTIONS = {"ethernet": EthernetParams, "risc": RiscParams}
MODULES = ("ccl.packets", "ccl.tensor_slicer", "edm.layout", "edm.worker", "fabric.connection", "fabric.packet")
COMMANDS = ("ahbm-bench",)
ON_OBJECTS = {"rank"}
"""Attributes that an instance has, and its class has not."""


def rows() -> list[list[str]]:
    """The table's rows as cells."""
    page = (ROOT / "docs/tensix-guide.md").read_text()
    lines = page[page.index(HEAD) :].splitlines()[2:]
    table = lines[: lines.index("")]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in table]


def exists(name: str) -> bool:
    """Whether a name of the middle column is one of this project."""
    if name in OBJECTS or name in COMMANDS:
        return True
    if name.startswith("--"):
        return name in {word for flag in options.FLAGS for word in (f"--{flag}", f"--{flag.replace('_', '-')}")}
    if "/" in name:
        return (ROOT / name).is_file()
    first, _, rest = name.partition(".")
    if first in SECTIONS:
        return rest in SECTIONS[first].__struct_fields__
    if first in OBJECTS:
        return rest in ON_OBJECTS or any(hasattr(each, rest) for each in OBJECTS[first])
    for module in MODULES:
        found = getattr(importlib.import_module(f"sipsim.chips.tensix.{module}"), first, None)
        if found is not None:
            return not rest or hasattr(found, rest)
    return False


def test_every_name_of_ours_exists() -> None:
    assert len(rows()) > 50
    ours = {name for row in rows() for name in re.findall(r"`([^`]+)`", row[1])}
    assert [name for name in sorted(ours) if not exists(name)] == []


def test_every_row_says_what_is_here_and_what_differs() -> None:
    assert all(len(row) == 3 and row[0][:2] in ("G ", "P ") and row[1] and row[2] for row in rows())


@pytest.mark.parametrize("name", ["tt.open_fabrics", "df.eth_send", "NoSuch", "--no-such", "docs/no.md", "risc.no_ns"])
def test_a_name_that_there_is_not_is_found(name: str) -> None:
    assert not exists(name)
